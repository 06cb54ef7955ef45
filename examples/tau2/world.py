"""A task of τ²-bench, played alone: its world, its prompt, its tools, and τ²'s own grade."""

import functools
import gc
import os

# τ² imports litellm, which would look for a list of prices on the network.
os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")

from loguru import logger

logger.remove()

from tau2.agent.llm_agent import AGENT_SOLO_INSTRUCTION, SYSTEM_PROMPT_SOLO, LLMSoloAgent
from tau2.data_model.message import AssistantMessage, ToolCall, ToolMessage
from tau2.data_model.simulation import RewardInfo, SimulationRun, TerminationReason
from tau2.domains.airline.data_model import FlightDB
from tau2.domains.airline.utils import AIRLINE_DB_PATH
from tau2.domains.retail.data_model import RetailDB
from tau2.domains.retail.utils import RETAIL_DB_PATH
from tau2.domains.telecom.data_model import TelecomDB
from tau2.domains.telecom.tools import TelecomTools
from tau2.domains.telecom.user_data_model import TelecomUserDB
from tau2.domains.telecom.utils import TELECOM_DB_PATH, TELECOM_USER_DB_PATH
from tau2.environment.environment import Environment
from tau2.environment.toolkit import ToolType
from tau2.evaluator.evaluator import EvaluationType, evaluate_simulation
from tau2.registry import registry
from tau2.utils import load_file

DOMAINS = ("retail", "airline", "telecom")
DONE = LLMSoloAgent.STOP_FUNCTION_NAME

# τ² has a solo mode for telecom only: a ticket, and the customer's tools beside the agent's.
CUSTOMER_NOTES = """
The customer cannot be asked anything. Below are the notes that the customer has for a conversation with you; "you" in them is the customer.
Take what the notes want, accept or insist on as said and confirmed by the customer, as far as the policy allows it.
When you call `{done}`, its `answer` is the only message that the customer gets: state in it everything that the customer wants to know.

{scenario}
""".strip()


class ReproducibleTelecomTools(TelecomTools):
    """τ² gives a new bill a random id, so an episode could neither be repeated nor be graded, which replays it."""

    def _apply_one_time_charge(self, customer_id: str, amount: float, description: str) -> None:
        known = len(self.db.bills)
        super()._apply_one_time_charge(customer_id, amount, description)
        for bill in self.db.bills[known:]:
            customer = self.get_customer_by_id(customer_id)
            place = customer.bill_ids.index(bill.bill_id)
            bill.bill_id = customer.bill_ids[place] = f"B{1001 + known}"


def has_user_tools(domain: str) -> bool:
    return domain == "telecom"


def _constructor(domain: str):
    """τ²'s constructor of the domain's environment, with files that are parsed once."""
    stock = registry.get_env_constructor(domain)
    if domain == "telecom":
        raw, raw_user = load_file(TELECOM_DB_PATH), load_file(TELECOM_USER_DB_PATH)

        def telecom(solo_mode: bool = False) -> Environment:
            db, user_db = TelecomDB.model_validate(raw), TelecomUserDB.model_validate(raw_user)
            environment = stock(db=db, user_db=user_db)
            environment.tools = ReproducibleTelecomTools(db)
            # Not `set_solo_mode`, which checks the names of all tools again, for 25 ms.
            environment.solo_mode = solo_mode
            return environment

        return telecom
    model, path = {"retail": (RetailDB, RETAIL_DB_PATH), "airline": (FlightDB, AIRLINE_DB_PATH)}[domain]
    raw = load_file(path)
    return lambda solo_mode=False: stock(db=model.model_validate(raw), solo_mode=solo_mode)


@functools.cache
def _registered(domain: str) -> str:
    """Name under which τ²'s evaluator finds our constructor of the domain."""
    name = f"{domain}-parsed-once"
    registry.register_domain(_constructor(domain), name)
    return name


def new_environment(domain: str) -> Environment:
    return registry.get_env_constructor(_registered(domain))(solo_mode=has_user_tools(domain))


def load(domain: str) -> None:
    """Reads the domain's files, and keeps the garbage collector from walking over them again and again."""
    tasks_of(domain)
    new_environment(domain)
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000)


@functools.cache
def tasks_of(domain: str) -> dict:
    """All tasks by their numbers: τ²'s ids; in telecom, where ids have up to 215 characters, places in τ²'s file."""
    tasks = registry.get_tasks_loader(domain)(task_split_name=None)
    return {task.id if task.id.isdigit() else str(place): task for place, task in enumerate(tasks)}


@functools.cache
def _stock(domain: str) -> Environment:
    return registry.get_env_constructor(domain)(solo_mode=has_user_tools(domain))


@functools.cache
def tools_of(domain: str) -> list[dict]:
    """Name, description and parameters of each tool, as τ² shows them to a model, and the tool that ends the episode."""
    environment = _stock(domain)
    tools = environment.get_tools() + (environment.get_user_tools() if environment.user_tools else [])
    answer = {"answer": {"type": "string", "description": "The message that the customer gets."}}
    needs_answer = environment.user_tools is None
    done = {
        "name": DONE,
        "description": "Call this function when you are done with the task.",
        "parameters": {
            "type": "object",
            "properties": answer if needs_answer else {},
            "required": ["answer"] if needs_answer else [],
        },
    }
    return [tool.openai_schema["function"] for tool in tools] + [done]


def prompt_of(domain: str, task) -> str:
    """What τ² says to its solo agent: instructions, the domain's policy, the ticket."""
    ticket = task.ticket or CUSTOMER_NOTES.format(done=DONE, scenario=task.user_scenario)
    return SYSTEM_PROMPT_SOLO.format(
        agent_instruction=AGENT_SOLO_INSTRUCTION.format(stop_function_name=DONE),
        domain_policy=_stock(domain).get_policy(),
        ticket=ticket,
    )


class Episode:
    """One try at a task. `grade` may be asked at any time, and grades as if the agent had stopped there."""

    def __init__(self, domain: str, number: str) -> None:
        self.domain, self.number = domain, number
        self.task = tasks_of(domain)[number]
        self.environment = new_environment(domain)
        if self.task.initial_state is not None:
            state = self.task.initial_state
            self.environment.set_state(state.initialization_data, state.initialization_actions, [])
        self.messages = []
        self.over = False
        self._graded: RewardInfo | None = None

    def call(self, name: str, arguments: dict) -> ToolMessage:
        """Runs a tool as τ² does: without a check of its arguments, and with errors as messages."""
        call = ToolCall(id=f"call_{len(self.messages)}", name=name, arguments=arguments)
        if name == DONE:
            self._finish(str(arguments.get("answer") or ""))
            return ToolMessage(id=call.id, role="tool", content="The episode has ended.")
        # Python would compute a tower of powers for hours.
        if name == "calculate" and "**" in str(arguments.get("expression")):
            return ToolMessage(
                id=call.id, role="tool", error=True, content="Error: Invalid characters in expression"
            )
        answer = self.environment.get_response(call)
        self.messages += [AssistantMessage(role="assistant", tool_calls=[call]), answer]
        if self._may_change_grade(name):
            self._graded = None
        return answer

    def _may_change_grade(self, name: str) -> bool:
        kits = [kit for kit in (self.environment.tools, self.environment.user_tools) if kit is not None]
        return not any(kit.has_tool(name) and kit.tool_type(name) == ToolType.READ for kit in kits)

    def _finish(self, answer: str) -> None:
        if answer:
            self.messages.append(AssistantMessage(role="assistant", content=answer))
        self.over, self._graded = True, None

    def grade(self) -> RewardInfo:
        if self._graded is None:
            self._graded = (
                grade_of(self.domain, self.task, self.messages)
                if self.messages
                else grade_of_nothing(self.domain, self.number)
            )
        return self._graded


def grade_of(domain: str, task, messages: list) -> RewardInfo:
    """τ²'s evaluation without a language model: a second world repeats the messages, a third one plays the gold actions."""
    simulation = SimulationRun(
        id=task.id,
        task_id=task.id,
        start_time="",
        end_time="",
        duration=0,
        termination_reason=TerminationReason.AGENT_STOP,
        messages=messages,
    )
    return evaluate_simulation(
        simulation, task, EvaluationType.ALL, solo_mode=has_user_tools(domain), domain=_registered(domain)
    )


@functools.lru_cache(maxsize=4096)
def grade_of_nothing(domain: str, number: str) -> RewardInfo:
    return grade_of(domain, tasks_of(domain)[number], [])


def explanation_of(grade: RewardInfo) -> str:
    """For people: which of τ²'s checks failed."""
    parts = [f"{basis.value} {value:g}" for basis, value in (grade.reward_breakdown or {}).items()]
    missing = [check.info for check in grade.communicate_checks or [] if not check.met]
    unmet = [str(check.env_assertion.func_name) for check in grade.env_assertions or [] if not check.met]
    return "; ".join(parts + [f"not said: {info}" for info in missing] + [f"not so: {name}" for name in unmet])


def splits_of(domain: str) -> dict[str, list[str]]:
    """τ²'s lists of task ids: `train`, `test` and others."""
    return registry.get_task_splits_loader(domain)()


def gold_of(domain: str, task) -> list[dict]:
    """τ²'s gold calls, and the call that ends the episode, with an answer of all that must be said."""
    criteria = task.evaluation_criteria
    calls = [{"name": action.name, "arguments": action.arguments} for action in criteria.actions or []]
    answer = {} if has_user_tools(domain) else {"answer": ". ".join(criteria.communicate_info or [])}
    return calls + [{"name": DONE, "arguments": answer}]
