"""The MCP server, asked by the SDK's own client."""

import asyncio
import json
import sys
from importlib.util import find_spec

import pytest
from exploits import CONTROLS, EXPLOITS, HEAD

import jitload

pytestmark = pytest.mark.skipif(not find_spec("mcp"), reason="mcp is not installed")


def asked(*calls: tuple[str, dict]) -> tuple[set[str], list[dict]]:
    """The names of the server's tools, and the answers to calls."""

    async def ask():
        from mcp import ClientSession  # late: it takes a second
        from mcp.client.stdio import StdioServerParameters, stdio_client

        server = StdioServerParameters(
            command=sys.executable, args=["-m", "lab", "mcp"], env=jitload.environment()
        )
        async with stdio_client(server) as ends, ClientSession(*ends) as client:
            await client.initialize()
            tools = {it.name for it in (await client.list_tools()).tools}
            answers = [await client.call_tool(name, given) for name, given in calls]
            texts = [it.content[0].text for it in answers]
            return tools, [
                {"wrong": text} if it.is_error else json.loads(text)
                for it, text in zip(answers, texts, strict=True)
            ]

    return asyncio.run(ask())


def test_tools_return_the_json_of_the_commands():
    broken = f'{HEAD}extern "C" int f() {{ return nothing; }}\n'
    tools, (refused, error) = asked(
        ("judge", {"task": "square", "source": EXPLOITS["system"]}),
        ("build", {"source": broken}),
    )
    assert tools == {"build", "check", "audit", "judge", "predict", "signature"}
    assert refused["verdict"] == "rejected"
    assert refused["stage"] == "gate"
    assert error["line"] == 3
    assert "nothing" in error["error"]


def test_a_client_is_told_why_a_call_is_wrong():
    source = CONTROLS["plain"]
    calls = {
        ("signature", "task", "cube"): "no file of Python and none of square",
        ("judge", "cases", 0): "cases: 0; wanted is one at least",
        ("audit", "op", "square"): "wanted is MODULE:FUNCTION",
    }
    given = {"signature": {}, "judge": {"task": "square", "source": source}, "audit": {}}
    asks = [(tool, given[tool] | {name: value}) for tool, name, value in calls]
    for said, answer in zip(calls.values(), asked(*asks)[1], strict=True):
        assert said in answer["wrong"]


@pytest.mark.slow
def test_judge_predict_and_audit():
    _, (plain, predicted, audited) = asked(
        ("judge", {"task": "square", "source": CONTROLS["plain"], "cases": 4}),
        ("predict", {"task": "square", "source": CONTROLS["plain"]}),
        ("audit", {"op": "kernels.square:square"}),
    )
    assert plain["verdict"] == "accepted"
    assert predicted["traffic"][-1]["fetched"] == predicted["traffic"][-1]["floor"]
    assert audited["ok"]
