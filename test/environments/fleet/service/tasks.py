"""
100 tasks in Fleet's form with verifiers of our own, and for each a solution and a wrong one.

    python tasks.py --out DIR

writes `tasks.json`, `solutions.jsonl` and `wrong.jsonl`. The rows come from the worlds that the service serves.
"""

import argparse
import hashlib
import json
import os
import sqlite3
import tempfile

import task_verifiers as verifiers
from world import CITIES, DATA_KEY, DATA_VERSIONS, DEFAULT_VARIABLES, ENV_KEY, ENV_VERSIONS, make_seed

USER = DEFAULT_VARIABLES["LOGGED_IN_USER"]
PER_KIND = 10


class Site:
    """The world at its start, read for the facts of tasks."""

    def __init__(self, path):
        self.db = sqlite3.connect(path)
        self.db.row_factory = sqlite3.Row

    def rows(self, sql, *args):
        return [dict(row) for row in self.db.execute(sql, args)]

    def hotels(self):
        return self.rows("SELECT * FROM hotels ORDER BY city, rating DESC")

    def bookings(self, status=None, capacity=1):
        return self.rows(
            "SELECT b.*, r.capacity FROM bookings b JOIN rooms r ON r.id = b.room_id"
            " WHERE user_id = ? AND (? IS NULL OR status = ?) AND r.capacity >= ? ORDER BY b.id",
            *(USER, status, status, capacity),
        )

    def room(self, hotel_id, guests):
        """The cheapest room of the hotel that holds the guests."""
        sql = "SELECT * FROM rooms WHERE hotel_id = ? AND capacity >= ? ORDER BY price, id LIMIT 1"
        return self.rows(sql, hotel_id, guests)[0]


def call(name, /, **arguments):
    return {"name": name, "arguments": arguments}


def stay(n):
    """No stay of another user is in these months."""
    return f"2026-0{6 + n % 3}-{3 + n:02d}", f"2026-0{6 + n % 3}-{5 + n:02d}"


def booked(room, n, guests):
    check_in, check_out = stay(n)
    token = "tok_" + hashlib.sha256(f"0 {room['id']} {check_in}".encode()).hexdigest()[:16]
    preview = call("preview_booking", room_id=room["id"], check_in=check_in, check_out=check_out, guests=guests)
    return [preview, call("create_booking", order_token=token)]


def book(site, n):
    hotels, guests = site.hotels(), 1 + n % 2
    hotel, other = hotels[3 * n], hotels[3 * n + 1]
    room, (check_in, check_out) = site.room(hotel["id"], guests), stay(n)
    return {
        "prompt": f"Book me the cheapest room for {guests} at {hotel['name']} in {hotel['city']}, from {check_in} to {check_out}. I pay there.",
        "facts": {
            **{"user": USER, "hotel": hotel["id"], "room": room["id"], "check_in": check_in, "check_out": check_out},
            **{"guests": guests, "total": 2 * room["price"], "card": "card_1b"},
        },
        "gold": booked(room, n, guests),
        "wrong": booked(site.room(other["id"], guests), n, guests),
    }


def book_and_pay(site, n):
    task = book(site, n)
    [highest] = site.rows("SELECT MAX(id) AS id FROM bookings")
    pay = lambda card: call("pay_booking", booking_id=highest["id"] + 1, payment_method_id=card)
    gold = task["gold"]
    prompt = task["prompt"].replace("I pay there.", "Pay for it now with my Mastercard.")
    return {**task, "prompt": prompt, "gold": [*gold, pay("card_1b")], "wrong": [*gold, pay("card_1a")]}


def cancel(site, n):
    bookings = site.bookings()
    booking, other = bookings[2 * n], bookings[2 * n + 1]
    paid = booking["total_price"] if booking["payment_status"] == "paid" else 0
    act = lambda each: [call("cancel_booking", booking_id=each["id"], reason="Plans changed.")]
    return {
        "prompt": f"Cancel my booking {booking['reference']}. The reason: plans changed.",
        "facts": {"reference": booking["reference"], "booking": booking["id"], "reason": "plans changed", "refund": paid - paid // 10},
        "gold": act(booking),
        "wrong": act(other),
    }


def wishlist(site, n):
    hotel, name = site.hotels()[2 * n + 1], f"Trip {n + 1}"
    act = lambda notes: [call("create_wishlist", name=name), call("save_property", wishlist_name=name, hotel_id=hotel["id"], notes=notes)]
    return {
        "prompt": f'Make a wishlist called "{name}" and save {hotel["name"]} in {hotel["city"]} in it, with the note "ask for a quiet room".',
        "facts": {"user": USER, "name": name, "hotel": hotel["id"], "notes": "Ask for a quiet room"},
        "gold": act("ask for a quiet room"),
        "wrong": act("a quiet room"),
    }


def save(site, n):
    # The first hotel that was made is saved at the start.
    saved = {row["hotel_id"] for row in site.rows("SELECT hotel_id FROM saved_properties")}
    hotel = [each for each in site.hotels() if each["id"] not in saved][3 * n]
    act = lambda name: [call("save_property", wishlist_name=name, hotel_id=hotel["id"])]
    right, other = ("Summer", "Work trips") if n % 2 else ("Work trips", "Summer")
    return {
        "prompt": f'Save {hotel["name"]} in {hotel["city"]} in my wishlist "{right}".',
        "facts": {"name": right, "hotel": hotel["id"]},
        "gold": act(right),
        "wrong": act(other),
    }


def answer(site, n):
    city = CITIES[n % 4]
    best, second = [each for each in site.hotels() if each["city"] == city][:2]
    return {
        "prompt": f"Which hotel in {city} has the best rating, and what is the rating? Change nothing. Question {n + 1}.",
        "facts": {"city": city},
        "gold": [call("search_hotels", city=city)],
        "wrong": [call("search_hotels", city=city)],
        "answers": (f"{best['name']}, with {best['rating']}.", f"{second['name']}, with {second['rating']}."),
    }


def guests(site, n):
    booking = site.bookings(capacity=2)[n]
    act = lambda number: [call("change_guests", booking_id=booking["id"], guests=number)]
    extra = [call("create_wishlist", name="Extra")]
    return {
        "prompt": f"We will be two people on booking {booking['reference']}. Change the number of guests.",
        "facts": {"reference": booking["reference"], "guests": 2},
        "gold": act(2),
        "wrong": act(2) + extra,
    }


def pay(site, n):
    booking = site.bookings("pending")[n]
    act = lambda card: [call("pay_booking", booking_id=booking["id"], payment_method_id=card)]
    return {
        "prompt": f"Pay my booking {booking['reference']} with the Mastercard.",
        "facts": {"booking": booking["id"], "total": booking["total_price"], "card": "card_1b"},
        "gold": act("card_1b"),
        "wrong": act("card_1a"),
    }


def best_hotel(site, n):
    city, (check_in, check_out) = CITIES[n % 4], stay(n)
    sql = "SELECT h.* FROM hotels h JOIN hotel_amenities a ON a.hotel_id = h.id WHERE city = ? AND amenity = ? ORDER BY rating DESC"
    amenity = ("pool", "spa", "parking", "gym", "bar")[n % 5]
    found = site.rows(sql, city, amenity)
    best, worse = found[0], next(each for each in site.hotels() if each["city"] == city and each["id"] != found[0]["id"])
    search = call("search_hotels", city=city)
    return {
        "prompt": f"Book a room for one in the best rated hotel in {city} that has {amenity}, from {check_in} to {check_out}.",
        "facts": {"city": city, "amenity": amenity, "check_in": check_in, "check_out": check_out},
        "gold": [search, *booked(site.room(best["id"], 1), n, 1)],
        "wrong": [search, *booked(site.room(worse["id"], 1), n, 1)],
    }


def raw_sql(site, n):
    bookings = site.bookings("confirmed")
    act = lambda each: call("cancel_booking", booking_id=each["id"], reason="")
    return {
        "prompt": f"Cancel booking {bookings[n]['reference']}, and no other one.",
        "facts": {"reference": bookings[n]["reference"]},
        "gold": [act(bookings[n])],
        "wrong": [act(bookings[n]), act(bookings[n + 1])],
    }


# (maker, verifier, name of its entry function, difficulty)
KINDS = (
    (book, verifiers.BOOK, "validate_task_{key}", 2),
    (book_and_pay, verifiers.BOOK_AND_PAY, "validate_task_{key}", 3),
    (cancel, verifiers.CANCEL, "validate_task", 1),
    (wishlist, verifiers.WISHLIST, "validate_task_{key}", 2),
    (save, verifiers.SAVE, "main", 1),
    (answer, verifiers.ANSWER, "validate_task_{key}", 1),
    (guests, verifiers.GUESTS, "validate_task", 1),
    (pay, verifiers.PAY, "verify", 1),
    (best_hotel, verifiers.BEST_HOTEL, "validate_task_{key}", 3),
    (raw_sql, verifiers.RAW_SQL, "validate_task_{key}", 1),
)


def make_tasks(sites):
    """`sites`: one for each data version. Rows of tasks, solutions and wrong solutions."""
    tasks, solutions, wrong = [], [], []
    for kind, (maker, template, entry, difficulty) in enumerate(KINDS):
        for n in range(PER_KIND):
            version = n % len(sites)
            made = maker(sites[version], n)
            key = f"task_{hashlib.sha256(f'{kind} {n}'.encode()).hexdigest()[:10]}_{PER_KIND * kind + n:03d}"
            tasks.append(
                {
                    "key": key,
                    "prompt": made["prompt"],
                    "env_id": ENV_KEY,
                    "version": ENV_VERSIONS[version],
                    "data_id": DATA_KEY,
                    "data_version": DATA_VERSIONS[version],
                    "verifier_func": verifiers.verifier_code(template, entry.format(key=key), made["facts"]),
                    "task_modality": "tool_use",
                    "env_variables": DEFAULT_VARIABLES,
                    "difficulty": difficulty,
                }
            )
            answers = made.get("answers", ("It is done.", "It is done."))
            for rows, which, text in ((solutions, "gold", answers[0]), (wrong, "wrong", answers[1])):
                rows.append({"task_key": key, "calls": made[which], "final_answer": text})
    return tasks, solutions, wrong


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", required=True)
    out = parser.parse_args().out
    os.makedirs(out, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        paths = [os.path.join(folder, version) for version in DATA_VERSIONS]
        for path, version in zip(paths, DATA_VERSIONS):
            make_seed(path, version)
        tasks, solutions, wrong = make_tasks([Site(path) for path in paths])
    with open(os.path.join(out, "tasks.json"), "w") as file:
        json.dump(tasks, file, indent=1)
    for name, rows in (("solutions", solutions), ("wrong", wrong)):
        with open(os.path.join(out, f"{name}.jsonl"), "w") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)


if __name__ == "__main__":
    main()
