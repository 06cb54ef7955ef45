"""
Verifiers in the styles that Fleet's tasks have, one per kind of task. `$entry` is the name of the entry function; the other `$` names
are facts of a task, put in as Python values. Where a verifier catches its own errors, it cannot tell a locked database from a task that
was not done: it gives 0 for both.
"""

from string import Template

BOOK = """
def $entry(env: Environment, final_answer: str | None = None) -> int:
    env.instance.load()
    seed = env.db("seed")
    current = env.db("current")
    try:
        known = {row["id"] for row in seed.table("bookings").select("id").all()}
        new = [row for row in current.table("bookings").eq("user_id", $user).all() if row["id"] not in known]
        if len(new) != 1:
            print(">>> ERROR_ACCUMULATOR >>>")
            print(["expected one new booking, found %d" % len(new)])
            print("<<< ERROR_ACCUMULATOR <<<")
            return TASK_FAILED_SCORE
        booking = new[0]
        seed.diff(current, IgnoreConfig(tables={"activities", "order_tokens"})).expect_only_v2([
            {"table": "bookings", "pk": booking["id"], "type": "insert", "fields": [
                ("id", booking["id"]), ("reference", ...), ("user_id", $user), ("hotel_id", $hotel), ("room_id", $room),
                ("check_in", $check_in), ("check_out", $check_out), ("guests", $guests), ("total_price", $total),
                ("status", "pending"), ("payment_status", "unpaid"), ("created_at", ...),
            ]},
        ])
        return TASK_SUCCESSFUL_SCORE
    except Exception as error:
        print("failed:", error)
        return TASK_FAILED_SCORE
"""

BOOK_AND_PAY = """
def $entry(env: Environment, final_answer: str | None = None) -> int:
    env.instance.load()
    seed, current = env.db("seed"), env.db("current")

    def new_rows(table):
        known = {row["id"] for row in seed.table(table).all()}
        return [row for row in current.table(table).all() if row["id"] not in known]

    try:
        bookings, payments = new_rows("bookings"), new_rows("transactions")
        assert len(bookings) == 1 and len(payments) == 1
        paid = (
            current.table("transactions")
            .select("transactions.amount", "transactions.payment_method_id", "bookings.room_id")
            .join("bookings", {"booking_id": "id"})
            .eq("booking_id", bookings[0]["id"])
            .first()
        )
        assert paid == {"amount": $total, "payment_method_id": $card, "room_id": $room}, paid
        current.table("bookings").eq("id", bookings[0]["id"]).assert_eq("status", "confirmed")
        seed.diff(current, IgnoreConfig(tables={"activities", "order_tokens"})).expect_only_v2([
            {"table": "bookings", "pk": bookings[0]["id"], "type": "insert", "fields": [
                ("id", ...), ("reference", ...), ("user_id", $user), ("hotel_id", $hotel), ("room_id", $room),
                ("check_in", $check_in), ("check_out", $check_out), ("guests", $guests), ("total_price", $total),
                ("status", "confirmed"), ("payment_status", "paid"), ("created_at", ...),
            ]},
            {"table": "transactions", "pk": payments[0]["id"], "type": "insert"},
        ])
    except Exception as error:
        print(error)
        return TASK_FAILED_SCORE
    return TASK_SUCCESSFUL_SCORE
"""

CANCEL = """
def $entry(env: Environment, final_answer: str | None = None) -> int:
    env.instance.load()
    seed, current = env.db("seed"), env.db("current")
    try:
        current.table("bookings").eq("reference", $reference).assert_eq("status", "cancelled")
        row = current.table("cancellations").eq("booking_id", $booking).first()
        if row is None or not normalized_contains($reason, row["reason"]):
            return TASK_FAILED_SCORE
        seed.diff(current, IgnoreConfig(tables={"activities"}, table_fields={"bookings": {"payment_status"}})).expect_only_v2([
            {"table": "bookings", "pk": $booking, "type": "modify", "resulting_fields": [("status", "cancelled")],
             "no_other_changes": True},
            {"table": "cancellations", "pk": row["id"], "type": "insert", "fields": [
                ("id", ...), ("booking_id", $booking), ("refund_amount", $refund), ("penalty_amount", ...), ("reason", ...)]},
        ])
    except Exception:
        return TASK_FAILED_SCORE
    return TASK_SUCCESSFUL_SCORE
"""

WISHLIST = """
def $entry(env: Environment, final_answer: str | None = None) -> int:
    env.instance.load()
    current = env.db("current")
    try:
        wishlist = current.table("wishlists").eq("user_id", $user).eq("name", $name).first()
        if not wishlist:
            return TASK_FAILED_SCORE
        return score_of(env, wishlist)
    except Exception:
        return TASK_FAILED_SCORE


def score_of(env, wishlist):
    seed, current = env.db("seed"), env.db("current")
    saved = current.table("saved_properties").eq("wishlist_id", wishlist["id"]).all()
    if [row["hotel_id"] for row in saved] != [$hotel]:
        return TASK_FAILED_SCORE
    if not normalized_string_comparison($notes, saved[0]["notes"]):
        return TASK_FAILED_SCORE
    seed.diff(current, IgnoreConfig(tables={"activities"})).expect_only([
        {"table": "wishlists", "pk": wishlist["id"], "field": None, "after": "__added__"},
        {"table": "saved_properties", "pk": saved[0]["id"], "field": None, "after": "__added__"},
    ])
    return TASK_SUCCESSFUL_SCORE
"""

SAVE = """
from math import isclose


def $entry(env: Environment) -> float:
    env.instance.load()
    current = env.db("current")
    wishlist = current.table("wishlists").eq("name", $name).first()
    try:
        current.table("saved_properties").eq("hotel_id", $hotel).eq("wishlist_id", wishlist["id"]).assert_exists()
        current.table("saved_properties").eq("hotel_id", $hotel).neq("wishlist_id", wishlist["id"]).assert_none()
    except (AssertionError, TypeError):
        return 0.0
    added = current.table("saved_properties").count() - env.db("seed").table("saved_properties").count()
    return 1.0 if isclose(added, 1) else 0.0
"""

ANSWER = """
def $entry(env: Environment, final_answer: str | None = None) -> int:
    env.instance.load()
    seed, current = env.db("seed"), env.db("current")
    if not final_answer:
        return TASK_FAILED_SCORE
    try:
        best = current.table("hotels").eq("city", $city).sort("rating", desc=True).first()
        seed.diff(current, IgnoreConfig(tables={"activities", "reviews"})).expect_only([])
        is_told = normalized_contains(best["name"], final_answer) and contains_number(final_answer, best["rating"])
        return TASK_SUCCESSFUL_SCORE if is_told else TASK_FAILED_SCORE
    except Exception:
        return TASK_FAILED_SCORE
"""

GUESTS = """
def $entry(env, final_answer=None):
    env.instance.load()
    seed, current = env.db("seed"), env.db("current")
    row = current.table("bookings").eq("reference", $reference).first()
    if not row or row["guests"] != $guests:
        return TASK_FAILED_SCORE
    try:
        seed.diff(current, IgnoreConfig(tables={"activities"})).expect_only(
            [{"table": "bookings", "pk": row["id"], "field": "guests", "after": $guests}]
        )
        return TASK_SUCCESSFUL_SCORE
    except AssertionError as error:
        print(error)
        return TASK_FAILED_SCORE
"""

PAY = """
import asyncio


async def $entry(env):
    await asyncio.sleep(0)
    current = env.db("current")
    rows = current.query("SELECT status, payment_status FROM bookings WHERE id = ?", [$booking]).rows or []
    paid = current.query("SELECT amount, payment_method_id FROM transactions WHERE booking_id = ?", [$booking]).rows or []
    is_right = [list(row) for row in rows] == [["confirmed", "paid"]] and [list(row) for row in paid] == [[$total, $card]]
    return {"score": 1.0} if is_right else {"score": 0.0}
"""

BEST_HOTEL = """
class Rows:
    def __init__(self, resource, table):
        self.by_id = {row["id"]: row for row in resource.table(table).all()}

    def added_to(self, earlier):
        return [row for key, row in self.by_id.items() if key not in earlier.by_id]


def $entry(env: Environment, final_answer: str | None = None) -> int:
    return ${entry}_of_site(env, final_answer)


def ${entry}_of_site(env, final_answer):
    env.instance.load()
    try:
        seed, current = env.db("seed"), env.db("current")
        with_amenity = {row["hotel_id"] for row in seed.table("hotel_amenities").eq("amenity", $amenity).all()}
        hotels = [row for row in seed.table("hotels").eq("city", $city).all() if row["id"] in with_amenity]
        best = max(hotels, key=lambda row: row["rating"])
        [booking] = Rows(current, "bookings").added_to(Rows(seed, "bookings"))
        if booking["hotel_id"] != best["id"] or (booking["check_in"], booking["check_out"]) != ($check_in, $check_out):
            return TASK_FAILED_SCORE
        seed.diff(current, IgnoreConfig(tables={"activities", "order_tokens"})).expect_only_v2(
            [{"table": "bookings", "pk": booking["id"], "type": "insert"}]
        )
        return TASK_SUCCESSFUL_SCORE
    except Exception:
        return TASK_FAILED_SCORE
"""

# It lets the error of a locked database through: the few verifiers of this kind fail where the others give 0.
RAW_SQL = """
def $entry(env: Environment, final_answer: str | None = None) -> int:
    env.instance.load()
    current = env.db("current")
    status = current.query("SELECT status FROM bookings WHERE reference = ?", [$reference]).rows[0][0]
    count = current.query("SELECT COUNT(*) FROM bookings WHERE status = 'cancelled'").rows[0][0]
    return TASK_SUCCESSFUL_SCORE if status == "cancelled" and count == 1 else TASK_FAILED_SCORE
"""


def verifier_code(template, entry, facts):
    return Template(template).substitute(entry=entry, **{name: repr(value) for name, value in facts.items()}).lstrip()
