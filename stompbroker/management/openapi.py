"""The API's OpenAPI document, and a page for people: both made of the table of endpoints."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, Field

from stompbroker import __version__
from stompbroker.control import METHODS
from stompbroker.management.endpoints import API, ENDPOINTS
from stompbroker.management.responses import PROBLEM_TYPE

if TYPE_CHECKING:
    from stompbroker.control import Param
    from stompbroker.management.endpoints import Endpoint


class Problem(BaseModel, extra="forbid"):
    type: str
    title: str
    status: int
    detail: str = Field(description="What was wrong, and what is allowed.")


def openapi_document() -> dict[str, Any]:
    schemas: dict[str, Any] = {"Problem": Problem.model_json_schema()}
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in ENDPOINTS:
        schema = endpoint.answer.model_json_schema(ref_template="#/components/schemas/{model}")
        schemas |= schema.pop("$defs", {})
        schemas[endpoint.answer.__name__] = schema
        paths.setdefault(f"{API}{endpoint.path}", {})[endpoint.method.lower()] = _operation(endpoint)
    return {
        "openapi": "3.1.0",
        "info": {"title": "stompbroker management API", "version": __version__},
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {
                "basic": {"type": "http", "scheme": "basic", "description": "The name and password of a user."},
                "bearer": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "The token of this broker, or a JSON Web Token of a user.",
                },
            },
        },
        # Without either, where neither users nor a token are set.
        "security": [{}, {"basic": []}, {"bearer": []}],
    }


def _operation(endpoint: Endpoint) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": endpoint.call,
        "summary": endpoint.summary,
        "tags": [endpoint.group],
        "parameters": [
            *(_parameter(name, param, "path") for name, param in endpoint.in_path.items()),
            *(_parameter(name, param, "query") for name, param in endpoint.in_query.items()),
        ],
        "responses": {
            "200": _response("Done.", "application/json", endpoint.answer),
            "401": _response("Nobody is logged in, or the login is refused.", PROBLEM_TYPE, Problem),
            "403": _response(_who_is_refused(endpoint), PROBLEM_TYPE, Problem),
            "default": _response("A problem.", PROBLEM_TYPE, Problem),
        },
    }
    if endpoint.in_body:
        required = [name for name, param in endpoint.in_body.items() if param.is_required]
        properties = {name: _schema(param) | {"description": param.says} for name, param in endpoint.in_body.items()}
        schema: dict[str, Any] = {"type": "object", "properties": properties, "additionalProperties": False}
        operation["requestBody"] = {
            "required": bool(required),
            "content": {"application/json": {"schema": schema | ({"required": required} if required else {})}},
        }
    return operation


def _who_is_refused(endpoint: Endpoint) -> str:
    role = "viewer or operator" if endpoint.method == "GET" else "operator"
    if METHODS[endpoint.call].keeps_to_caller:
        return f"The user needs the role {role}, and permission for what is asked for."
    return f"The user needs the role {role}, and no patterns: this concerns the whole broker."


def _response(says: str, media_type: str, model: type[BaseModel]) -> dict[str, Any]:
    schema = {"$ref": f"#/components/schemas/{model.__name__}"}
    return {"description": says, "content": {media_type: {"schema": schema}}}


def _parameter(name: str, param: Param, place: str) -> dict[str, Any]:
    is_required = place == "path"
    return {"name": name, "in": place, "required": is_required, "description": param.says, "schema": _schema(param)}


def _schema(param: Param) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": {str: "string", int: "integer", bool: "boolean"}[param.kind]}
    if param.kind is int:
        schema |= {"minimum": param.low, "maximum": param.high}
    return schema | ({"enum": list(param.choices)} if param.choices else {})


def readable_page() -> str:
    """The same for people, without any script."""
    parts = []
    for group in dict.fromkeys(endpoint.group for endpoint in ENDPOINTS):
        parts.append(f"<h2>{escape(group.capitalize())}</h2>")
        parts += [_described(endpoint) for endpoint in ENDPOINTS if endpoint.group == group]
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>stompbroker API</title><link rel="icon" href="/static/icon.svg">
<link rel="stylesheet" href="/static/style.css"></head>
<body class="document"><main><h1>Management API</h1>
<p>JSON under <code>{API}</code>; the same as OpenAPI at <a href="/api/openapi.json">/api/openapi.json</a>. Problems are
<code>{PROBLEM_TYPE}</code>. Live: <code>GET {API}/events</code>, server-sent events, an overview every second; with
<code>?resource=/topics%3Fsort=-rate</code> also that page. Where there are users, send name and password of one as
<code>Authorization: Basic</code>, or a JSON Web Token as <code>Authorization: Bearer</code>; where a token is set,
<code>Authorization: Bearer TOKEN</code>. GET needs the role viewer or operator, everything else operator.</p>
{"".join(parts)}
</main></body></html>
"""


def _described(endpoint: Endpoint) -> str:
    params = {**endpoint.in_path, **endpoint.in_query, **endpoint.in_body}
    rows = "".join(
        f"<tr><td><code>{escape(name)}</code></td><td>{escape(param.says)}"
        f"{escape(' One of ' + ', '.join(param.choices) + '.') if param.choices else ''}</td></tr>"
        for name, param in params.items()
    )
    table = f"<table>{rows}</table>" if rows else ""
    return (
        f"<section><h3><code>{endpoint.method} {escape(API + endpoint.path)}</code></h3>"
        f"<p>{escape(endpoint.summary)}.</p>{table}</section>"
    )
