"""The description of the API over HTTP: for programs at /openapi.json, for people at /docs.

The page is made from the same description, once, and needs neither scripts nor anything from elsewhere.
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
.method { display: inline-block; min-width: 4.5rem; font-weight: 700; color: #0b6e5f }
@media (prefers-color-scheme: dark) {
  body { background: #12181f; color: #dde5ec } code, pre { background: #1d2630 } h2 { border-color: #2c3946 }
  .method { color: #4fd1b8 }
}
"""
_BEGINNING = """curl --json '{"message": "hello", "priority": 5, "delay": 10}' localhost:8080/queues/orders/messages
curl 'localhost:8080/queues/orders/messages?batch_size=10&wait=20'
curl -X DELETE localhost:8080/queues/orders/messages/RECEIPT_HANDLE"""
# Nothing of the page runs, and nothing is loaded for it.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"


def description_routes(*, wait_seconds_max: float) -> list[Route]:
    description = describe_api(version=__version__, wait_seconds_max=wait_seconds_max)
    encoded = msgspec.json.format(msgspec.json.encode(description), indent=2) + b"\n"
    page = page_of(description).encode()

    async def get_openapi(request: Request) -> Response:
        return Response(encoded, media_type=JSON)

    async def get_docs(request: Request) -> Response:
        return Response(page, media_type="text/html", headers={"Content-Security-Policy": _POLICY})

    return [Route("/openapi.json", get_openapi, methods=["GET"]), Route("/docs", get_docs, methods=["GET"])]


def page_of(description: dict[str, Any]) -> str:
    schemas = description["components"]["schemas"]
    operations = [
        _operation(method, path, operation)
        for path, methods in description["paths"].items()
        for method, operation in methods.items()
    ]
    shapes = [_shape(name, schemas[name]) for name in sorted(schemas)]
    info = description["info"]
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{escape(info["title"])}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style>'
        f"<h1>{escape(info['title'])} {escape(info['version'])}</h1><p>{escape(info['description'])} "
        f'For programs: <a href="/openapi.json">/openapi.json</a>.</p><pre>{escape(_BEGINNING)}</pre>'
        f"{''.join(operations)}<h1>Shapes</h1>{''.join(shapes)}</html>\n"
    )


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
        shapes = [_type(content["schema"]) for content in operation["requestBody"]["content"].values()]
        parts.append(f"<p>takes {_links(' or '.join(shapes))}</p>")
    for status, answer in operation["responses"].items():
        if status.startswith("2"):
            shapes = [_type(content["schema"]) for content in answer.get("content", {}).values()]
            parts.append(f"<p>answers {status} {_links(' or '.join(shapes))}</p>")
    refusals = [status for status in operation["responses"] if status.startswith(("4", "5"))]
    parts.append(f"<p>refuses with {', '.join(refusals)}</p>")
    return "".join(parts)


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
    if kind == "array":
        return f"list of {_type(schema.get('items', {}))}"
    if "enum" in schema:
        return ", ".join(map(str, schema["enum"]))
    if "maximum" in schema and "minimum" in schema:
        return f"{kind} from {schema['minimum']:g} to {schema['maximum']:g}"
    return str(kind)


def _links(text: str) -> str:
    """Shapes begin with a capital; each leads to its description."""
    words = [
        f'<a href="#{escape(word)}">{escape(word)}</a>' if word[:1].isupper() else escape(word)
        for word in text.split(" ")
    ]
    return " ".join(words)
