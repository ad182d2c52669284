"""The description of the API over HTTP: for programs at /openapi.json, for people at /docs.

The page is made from the same description and needs neither scripts nor anything from elsewhere. Its examples are for
the address under which the node was asked.
"""

from html import escape
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from headrace import __version__
from headrace.gateways.http.message import JSON
from headrace.gateways.rest.openapi import describe_api

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #1c2733 }
code, pre { font: 14px/1.4 ui-monospace, monospace; background: #f2f5f8; border-radius: 4px; padding: .1em .3em }
pre { padding: .8em; overflow-x: auto }
h2 { margin-top: 2.5rem; font-size: 1.1rem; border-top: 1px solid #d6dee6; padding-top: 1rem }
table { border-collapse: collapse; margin: .5rem 0 } td, th { text-align: left; padding: .2rem .8rem .2rem 0 }
nav { columns: 2; margin-top: 1.5rem } nav section { break-inside: avoid; margin-bottom: 1rem }
nav ul { margin: .2rem 0; padding-left: 1.2rem } a { color: #0b5fa5 }
.method { display: inline-block; min-width: 4.5rem; font-weight: 700; color: #0b6e5f }
@media (prefers-color-scheme: dark) {
  body { background: #12181f; color: #dde5ec } code, pre { background: #1d2630 } h2 { border-color: #2c3946 }
  .method { color: #4fd1b8 } a { color: #7ab8f5 }
}
"""
DEFAULT_ADDRESS = "localhost:8080"
_ADDRESS = "ADDRESS"
_BEGINNING = """curl --json '{"message": "hello", "priority": 5, "delay": 10}' ADDRESS/queues/tasks/messages
curl 'ADDRESS/queues/tasks/messages?batch_size=10&wait=20'
curl -X DELETE ADDRESS/queues/tasks/messages/RECEIPT_HANDLE"""
_FORMS = (
    "The first send makes the queue. A message that was received is yours for its lease; take its receipt_handle to "
    "acknowledge it, or it is handed out again. Bodies are JSON; where application/msgpack is named, Content-Type and "
    "Accept can ask for MessagePack, in which bodies, keys and headers are bytes. Every refusal is a Problem "
    "(application/problem+json) with a code that does not change and what to do."
)
# Nothing of the page runs, and nothing is loaded for it.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"


def description_routes(*, wait_seconds_max: float) -> list[Route]:
    description = describe_api(version=__version__, wait_seconds_max=wait_seconds_max)
    encoded = msgspec.json.format(msgspec.json.encode(description), indent=2) + b"\n"

    async def get_openapi(request: Request) -> Response:
        return Response(encoded, media_type=JSON)

    async def get_docs(request: Request) -> Response:
        page = page_of(description, address=request.headers.get("host") or DEFAULT_ADDRESS)
        return Response(page, media_type="text/html", headers={"Content-Security-Policy": _POLICY})

    return [Route("/openapi.json", get_openapi, methods=["GET"]), Route("/docs", get_docs, methods=["GET"])]


def page_of(description: dict[str, Any], *, address: str = DEFAULT_ADDRESS) -> str:
    """The page, with examples for a node at this address."""
    schemas = description["components"]["schemas"]
    described: dict[str, list[tuple[str, str, dict[str, Any]]]] = {tag["name"]: [] for tag in description["tags"]}
    for path, methods in description["paths"].items():
        for method, operation in methods.items():
            described[operation["tags"][0]].append((method, path, operation))
    parts = [
        f"<h1>{escape(tag['name'].capitalize())}</h1><p>{escape(tag['description'])}</p>"
        + "".join(_operation(*one) for one in described[tag["name"]])
        for tag in description["tags"]
    ]
    shapes = [_shape(name, schemas[name]) for name in sorted(schemas)]
    info = description["info"]
    title = f"{escape(info['title'])} {escape(info['version'])}"
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style>'
        f"<h1>{title}</h1><p>{escape(info['description'])} "
        f'For programs: <a href="/openapi.json">/openapi.json</a>.</p>'
        f"<pre>{escape(_BEGINNING.replace(_ADDRESS, address))}</pre><p>{escape(_FORMS)}</p>"
        f"<nav>{''.join(_contents(tag, described[tag]) for tag in described)}</nav>"
        f"{''.join(parts)}<h1>Shapes</h1>{''.join(shapes)}</html>\n"
    )


def _contents(tag: str, described: list[tuple[str, str, dict[str, Any]]]) -> str:
    lines = [
        f'<li><a href="#{escape(operation["operationId"])}">{escape(operation["summary"])}</a>'
        for _, _, operation in described
    ]
    return f"<section><b>{escape(tag.capitalize())}</b><ul>{''.join(lines)}</ul></section>"


def _operation(method: str, path: str, operation: dict[str, Any]) -> str:
    parts = [
        f'<h2 id="{escape(operation["operationId"])}"><span class="method">{method.upper()}</span> '
        f"<code>{escape(path)}</code></h2><p>{escape(operation['summary'])}. "
        f"{escape(operation.get('description', ''))}</p>"
    ]
    rows = [
        f"<tr><td><code>{escape(field['name'])}</code><td>{escape(_type(field['schema']))}"
        f"<td>{escape(field.get('description', ''))}"
        for field in operation["parameters"]
        if field["in"] == "query"
    ]
    if rows:
        parts.append(f"<table>{''.join(rows)}</table>")
    if "requestBody" in operation:
        content = operation["requestBody"]["content"]
        optional = "" if operation["requestBody"]["required"] else ", or nothing"
        parts.append(f"<p>takes {_bodies(content)}{optional}</p>")
        for body in content.values():
            if "example" in body:
                parts.append(f"<pre>{escape(msgspec.json.encode(body['example']).decode())}</pre>")
    for status, answer in operation["responses"].items():
        if status.startswith("2"):
            parts.append(f"<p>answers {status} {_bodies(answer.get('content', {}))}</p>")
    refusals = [status for status in operation["responses"] if status.startswith(("4", "5"))]
    parts.append(f"<p>refuses with {', '.join(refusals)}</p>")
    return "".join(parts)


def _bodies(content: dict[str, Any]) -> str:
    """What a body is, for each of its types; those of one shape together."""
    types: dict[str, list[str]] = {}
    for name, body in content.items():
        types.setdefault(_links(_type(body["schema"])), []).append(name)
    return "; ".join(f"{shape} ({escape(', '.join(names))})" for shape, names in types.items())


def _shape(name: str, schema: dict[str, Any]) -> str:
    required = schema.get("required", [])
    rows = [
        f"<tr><td><code>{escape(field)}</code><td>{_links(_type(inner))}"
        f"<td>{'required' if field in required else ''}<td>{escape(inner.get('description', ''))}"
        for field, inner in schema.get("properties", {}).items()
    ]
    values = f"<p>one of {escape(', '.join(map(str, schema['enum'])))}</p>" if "enum" in schema else ""
    about = f"<p>{escape(schema.get('description', ''))}</p>"
    return f'<h2 id="{escape(name)}">{escape(name)}</h2>{about}{values}<table>{"".join(rows)}</table>'


def _type(schema: dict[str, Any]) -> str:
    """A schema in a few words."""
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    for choice in ("anyOf", "oneOf"):
        if choice in schema and "type" not in schema:
            return " or ".join(_type(inner) for inner in schema[choice])
    kind = schema.get("type", "any value")
    if "prefixItems" in schema:
        return f"[ {' , '.join(_type(inner) for inner in schema['prefixItems'])} ]"
    if kind == "array":
        return f"list of {_type(schema.get('items', {}))}"
    if kind == "object" and isinstance(values := schema.get("additionalProperties"), dict):
        return f"object of {_type(values)}"
    if "enum" in schema:
        return ", ".join(map(str, schema["enum"]))
    if "maximum" in schema and "minimum" in schema:
        return f"{kind} from {schema['minimum']:g} to {schema['maximum']:g}"
    return "bytes" if schema.get("format") == "binary" else str(kind)


def _links(text: str) -> str:
    """Shapes begin with a capital; each leads to its description."""
    words = [
        f'<a href="#{escape(word)}">{escape(word)}</a>' if word[:1].isupper() else escape(word)
        for word in text.split(" ")
    ]
    return " ".join(words)
