"""Requests with a method that a path does not have name the methods that it has."""

import httpx


async def test_the_methods_of_a_path_are_those_that_are_described(web: httpx.AsyncClient) -> None:
    described = (await web.get("/openapi.json")).json()["paths"]
    assert any(len(methods) > 1 for methods in described.values())
    for path, methods in described.items():
        answer = await web.request("TRACE", path.replace("{", "").replace("}", ""))
        assert answer.status_code == 405, path
        allowed = {method.lower() for method in answer.headers["allow"].split(", ")}
        assert allowed - {"head"} == methods.keys(), path
