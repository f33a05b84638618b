"""The application: one turn of a counting chat, as a role that may do nothing but rows.

Takes the runtime role's connection string from DATABASE_URL.
"""

import operator
import os
import sys
from typing import Annotated

from langchain_core.runnables import RunnableConfig
from langgraph.graph import START, StateGraph
from psycopg.rows import dict_row
from psycopg_pool import ConnectionPool
from typing_extensions import TypedDict

from delta_mixin.schema import SchemaNotReadyError, open_checkpointer


class State(TypedDict):
    turns: Annotated[int, operator.add]


def main() -> None:
    graph = StateGraph(State)
    graph.add_node("turn", lambda state: {"turns": 1})
    graph.add_edge(START, "turn")
    options = {"autocommit": True, "row_factory": dict_row}
    with ConnectionPool(os.environ["DATABASE_URL"], min_size=1, kwargs=options) as pool:
        try:
            # Nothing here creates tables: the deploy step has, or this build does not start.
            checkpointer = open_checkpointer(pool)
        except SchemaNotReadyError as refusal:
            sys.exit(f"not starting: {refusal}")
        chat = graph.compile(checkpointer=checkpointer)
        config: RunnableConfig = {"configurable": {"thread_id": "chat"}}
        state = chat.invoke({"turns": 0}, config, durability="sync")
        print("turns so far:", state["turns"])


if __name__ == "__main__":
    main()
