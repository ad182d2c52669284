"""One Python module from the messages of one API: values, readers, writers.

Each struct becomes a frozen msgspec struct with a read and a write function. Neighbouring fixed-width fields of the
same versions are read and written in one step of `struct`, which is what makes the code as fast as one function for
each version would be at a tenth of the lines.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

from tools.kafka_codegen.table import Field, Message, Range, StructTable, intersect, snake

_FIXED = {
    # table type: struct letter, size, name part, reader method
    "bool": ("?", 1, "BOOL", "boolean"),
    "int8": ("b", 1, "I8", "int8"),
    "int16": ("h", 2, "I16", "int16"),
    "uint16": ("H", 2, "U16", "uint16"),
    "int32": ("i", 4, "I32", "int32"),
    "int64": ("q", 8, "I64", "int64"),
    "float64": ("d", 8, "F64", "float64"),
}
_PYTHON_TYPES = {
    "bool": "bool",
    "float64": "float",
    "uuid": "UUID",
    "string": "str",
    "bytes": "bytes",
    "records": "Buffer",
}
_METHODS = {"bytes": "byte_string", "string": "string", "uuid": "uuid", "records": "records"}
_LOCAL_NAMES = {"r", "w", "v", "version", "fields", "tag"}


def condition(versions: Range, within: Range) -> str:
    """The question whether a version has something, given what versions it can be; empty if all have."""
    first, last = versions
    if first <= within[0] and last >= within[1]:
        return ""
    if last >= within[1]:
        return f"version >= {first}"
    if first <= within[0]:
        return f"version <= {last}"
    if first == last:
        return f"version == {first}"
    return f"{first} <= version <= {last}"


def _layout_name(fields: list[Field]) -> str:
    parts = []
    for part, run in groupby(_FIXED[item.base][2] for item in fields):
        count = len(list(run))
        parts.append(part if count == 1 else f"{part}X{count}")
    return "_" + "_".join(parts)


def _is_fixed(item: Field) -> bool:
    return item.base in _FIXED and not item.is_array and item.tag is None


@dataclass(slots=True)
class ModuleEmitter:
    """Writes one message after another and keeps what they share: the layouts of fixed-width runs."""

    layouts: dict[str, str]
    class_names: dict[tuple[str, str], str]
    message: Message

    def class_of(self, name: str) -> str:
        return self.class_names[(self.message.name, name)]

    # Types and defaults.

    def python_type(self, item: Field) -> str:
        if item.base in self.message.structs:
            base = self.class_of(item.base)
        else:
            base = _PYTHON_TYPES.get(item.base, "int")
        if item.is_array:
            base = f"tuple[{base}, ...]"
        return f"{base} | None" if item.nullable[0] <= item.nullable[1] else base

    def default(self, item: Field) -> str:
        given = item.default
        if given == "null":
            return "None"
        if item.is_array:
            return "()"
        if item.base in self.message.structs:
            return f"{self.class_of(item.base)}()"
        match item.base:
            case "bool":
                return str(given in (True, "true"))
            case "string":
                return f'"{given or ""}"'
            case "bytes" | "records":
                return 'b""'
            case "uuid":
                return "ZERO_UUID"
            case "float64":
                return repr(float(given or 0))
        return repr(int(given, 0) if isinstance(given, str) else int(given or 0))

    def _is_set(self, item: Field) -> str:
        """The test whether a field differs from its default."""
        default = self.default(item)
        value = f"v.{item.name}"
        if default == "None":
            return f"{value} is not None"
        if default == "False":
            return value
        if default == "True":
            return f"not {value}"
        if default in ('""', "()", 'b""') and item.nullable[0] > item.nullable[1]:
            return value
        return f"{value} != {default}"

    # Sizes, for the check of array counts.

    def _size_min(self, item: Field, version: int) -> int:
        flexible = self.message.flexible_from is not None and version >= self.message.flexible_from
        if item.is_array:
            return 1 if flexible else 4
        if item.base in _FIXED:
            return _FIXED[item.base][1]
        if item.base == "uuid":
            return 16
        if item.base in self.message.structs:
            nullable = item.nullable[0] <= version <= item.nullable[1]
            return 1 if nullable else self._struct_size_min(self.message.structs[item.base], version)
        return 1 if flexible else {"string": 2}.get(item.base, 4)

    def _struct_size_min(self, struct: StructTable, version: int) -> int:
        present = (item for item in struct.fields if item.versions[0] <= version <= item.versions[1])
        flexible = self.message.flexible_from is not None and version >= self.message.flexible_from
        return sum(self._size_min(item, version) for item in present if item.tag is None) + flexible

    def _element_size_min(self, item: Field) -> int:
        first, last = intersect(item.versions, self.message.versions)
        struct = self.message.structs[item.base]
        return max(1, min(self._struct_size_min(struct, version) for version in range(first, last + 1)))

    # Reading.

    def _read_call(self, item: Field, nullable: bool) -> str:
        prefix = "nullable_" if nullable else ""
        if item.base in self.message.structs:
            read = f"_read_{snake(self.class_of(item.base))}"
            if item.is_array:
                return f"r.{prefix}array({read}, version, {self._element_size_min(item)})"
            return f"r.nullable_struct({read}, version)" if nullable else f"{read}(r, version)"
        if item.is_array:
            return f"r.{prefix}{item.base}_array()"
        if item.base in _FIXED:
            return f"r.{_FIXED[item.base][3]}()"
        return f"r.{prefix}{_METHODS[item.base]}()"

    def _read_value(self, item: Field) -> str:
        if item.nullable[0] > item.nullable[1]:
            return self._read_call(item, nullable=False)
        question = condition(item.nullable, item.versions)
        nullable = self._read_call(item, nullable=True)
        if not question:
            return nullable
        return f"({nullable} if {question} else {self._read_call(item, nullable=False)})"

    def _read_run(self, fields: list[Field]) -> Iterator[str]:
        """Lines that read neighbouring fields which are all present."""
        for fixed, run in groupby(fields, _is_fixed):
            items = list(run)
            if fixed and len(items) > 1:
                yield f"{', '.join(local(item) for item in items)} = r.fixed({self._layout(items)})"
                continue
            for item in items:
                yield f"{local(item)} = {self._read_value(item)}"

    def _layout(self, items: list[Field]) -> str:
        name = _layout_name(items)
        self.layouts[name] = "".join(_FIXED[item.base][0] for item in items)
        return name

    def _declared(self, item: Field) -> str:
        return f"{local(item)}: {self.python_type(item)}"

    def read_function(self, struct: StructTable, name: str) -> Iterator[str]:
        cls = self.class_of(struct.name)
        yield f"def {name}(r: Reader, version: int) -> {cls}:"
        plain = [item for item in struct.fields if item.tag is None]
        for question, run in groupby(plain, lambda item: condition(item.versions, struct.versions)):
            items = list(run)
            if not question:
                yield from (f"    {line}" for line in self._read_run(items))
            elif len(items) == 1:
                item = items[0]
                value = f"{self._read_value(item)} if {question} else {self.default(item)}"
                yield f"    {self._declared(item)} = {value}"
            else:
                for item in items:
                    yield f"    {self._declared(item)} = {self.default(item)}"
                yield f"    if {question}:"
                yield from (f"        {line}" for line in self._read_run(items))
        yield from self._read_tags(struct)
        yield f"    return {cls}({', '.join(local(item) for item in struct.fields)})"
        yield ""

    def _read_tags(self, struct: StructTable) -> Iterator[str]:
        tagged = sorted((item for item in struct.fields if item.tag is not None), key=lambda item: item.tag or 0)
        if not tagged:
            if self.message.flexible_from is not None:
                yield "    r.end_struct()"
            return
        for item in tagged:
            yield f"    {self._declared(item)} = {self.default(item)}"
        yield "    for tag in r.tags():"
        for index, item in enumerate(tagged):
            question = condition(item.versions, self._flexible_versions(struct))
            yield f"        {'elif' if index else 'if'} tag == {item.tag}{question and ' and ' + question}:"
            yield f"            {local(item)} = {self._read_value(item)}"

    def _flexible_versions(self, struct: StructTable) -> Range:
        assert self.message.flexible_from is not None
        return max(struct.versions[0], self.message.flexible_from), struct.versions[1]

    # Writing.

    def _write_call(self, item: Field, writer: str, value: str, nullable: bool) -> str:
        prefix = "nullable_" if nullable else ""
        if item.base in self.message.structs:
            write = f"_write_{snake(self.class_of(item.base))}"
            if item.is_array:
                return f"{writer}.{prefix}array({value}, {write}, version)"
            if nullable:
                return f"{writer}.nullable_struct({value}, {write}, version)"
            return f"{write}({writer}, {value}, version)"
        if item.is_array:
            return f"{writer}.{prefix}{item.base}_array({value})"
        if item.base in _FIXED:
            return f"{writer}.put({self._layout([item])}.pack({value}))"
        return f"{writer}.{prefix}{_METHODS[item.base]}({value})"

    def _write_value(self, item: Field, writer: str, struct: StructTable) -> Iterator[str]:
        value = f"v.{item.name}"
        if item.nullable[0] > item.nullable[1]:
            yield self._write_call(item, writer, value, nullable=False)
            return
        question = condition(item.nullable, item.versions)
        if not question:
            yield self._write_call(item, writer, value, nullable=True)
            return
        present = f'required({value}, "{self.class_of(struct.name)}.{item.name}", version)'
        yield f"if {question}:"
        yield f"    {self._write_call(item, writer, value, nullable=True)}"
        yield "else:"
        yield f"    {self._write_call(item, writer, present, nullable=False)}"

    def _write_run(self, fields: list[Field], struct: StructTable) -> Iterator[str]:
        for fixed, run in groupby(fields, _is_fixed):
            items = list(run)
            if fixed and len(items) > 1:
                yield f"w.put({self._layout(items)}.pack({', '.join('v.' + item.name for item in items)}))"
                continue
            for item in items:
                yield from self._write_value(item, "w", struct)

    def _refusals(self, items: list[Field], struct: StructTable) -> Iterator[str]:
        """Branches for a version without these fields: those that matter must not be set."""
        for item in items:
            if not item.ignorable:
                yield f"    elif {self._is_set(item)}:"
                yield f'        raise unwritable("{self.class_of(struct.name)}.{item.name}", version)'

    def write_function(self, struct: StructTable, name: str) -> Iterator[str]:
        yield f"def {name}(w: Writer, v: {self.class_of(struct.name)}, version: int) -> None:"
        plain = [item for item in struct.fields if item.tag is None]
        for question, run in groupby(plain, lambda item: condition(item.versions, struct.versions)):
            items = list(run)
            if not question:
                yield from (f"    {line}" for line in self._write_run(items, struct))
                continue
            yield f"    if {question}:"
            yield from (f"        {line}" for line in self._write_run(items, struct))
            yield from self._refusals(items, struct)
        yield from self._write_tags(struct)
        if not struct.fields and self.message.flexible_from is None:
            yield '    """Nothing is written: the struct has no fields."""'
        yield ""

    def _write_tags(self, struct: StructTable) -> Iterator[str]:
        tagged = sorted((item for item in struct.fields if item.tag is not None), key=lambda item: item.tag or 0)
        if not tagged:
            if self.message.flexible_from is not None:
                yield "    w.end_struct()"
            return
        yield "    fields: list[tuple[int, Writer]] = []"
        for item in tagged:
            question = condition(item.versions, struct.versions)
            yield f"    if {question and question + ' and '}{self._is_set(item)}:"
            yield f"        fields.append(({item.tag}, w.nested()))"
            for line in self._write_value(item, "fields[-1][1]", struct):
                yield f"        {line}"
            if question and not item.ignorable:
                yield from self._refusals([item], struct)
        yield "    w.tags(fields)"

    # Values.

    def value_class(self, struct: StructTable) -> Iterator[str]:
        yield f"class {self.class_of(struct.name)}(Struct, frozen=True, gc=False):"
        for item in struct.fields:
            yield f"    {self._declared_attribute(item)}"
        if not struct.fields:
            yield '    """Carries nothing."""'
        yield ""

    def _declared_attribute(self, item: Field) -> str:
        text = f"{item.name}: {self.python_type(item)} = {self.default(item)}"
        notes = []
        if item.versions[0] > self.message.versions[0] or item.versions[1] < self.message.versions[1]:
            open_end = item.versions[1] >= self.message.versions[1]
            notes.append(f"{item.versions[0]}+" if open_end else f"{item.versions[0]}-{item.versions[1]}")
        if item.tag is not None:
            notes.append(f"tag {item.tag}")
        return f"{text}  # {', '.join(notes)}" if notes else text


def local(item: Field) -> str:
    """A field's name as a local variable, out of the way of those that the functions use themselves."""
    return f"{item.name}_" if item.name in _LOCAL_NAMES else item.name
