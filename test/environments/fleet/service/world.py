"""The databases of a world: a site on which a user finds and books hotels."""

import os
import random
import shutil
import sqlite3

ENV_KEY = "harbour"
ENV_VERSIONS = ("v1.0.0", "v1.1.0")
DATA_KEY = "coast"
DATA_VERSIONS = ("v1.0.0", "v1.1.0")
DEFAULT_VARIABLES = {"CURRENT_DATE": "2026-03-02", "LOGGED_IN_USER": "user_1", "LOGGED_IN_NAME": "Ada Marsh"}

SCHEMA = """
CREATE TABLE users (id TEXT PRIMARY KEY, name TEXT NOT NULL, email TEXT NOT NULL);
CREATE TABLE payment_methods (id TEXT PRIMARY KEY, user_id TEXT NOT NULL, card_type TEXT, last_four TEXT, is_default INTEGER);
CREATE TABLE hotels (id TEXT PRIMARY KEY, name TEXT NOT NULL, city TEXT NOT NULL, stars INTEGER, rating REAL, address TEXT);
CREATE TABLE hotel_amenities (hotel_id TEXT, amenity TEXT, PRIMARY KEY (hotel_id, amenity));
CREATE TABLE rooms (id TEXT PRIMARY KEY, hotel_id TEXT NOT NULL, name TEXT, capacity INTEGER, price INTEGER, units INTEGER);
CREATE TABLE reviews (id INTEGER PRIMARY KEY, hotel_id TEXT NOT NULL, author TEXT, score INTEGER, text TEXT);
CREATE TABLE bookings (id INTEGER PRIMARY KEY, reference TEXT NOT NULL, user_id TEXT NOT NULL, hotel_id TEXT NOT NULL,
  room_id TEXT NOT NULL, check_in TEXT, check_out TEXT, guests INTEGER, total_price INTEGER, status TEXT,
  payment_status TEXT, created_at TEXT);
CREATE TABLE transactions (id INTEGER PRIMARY KEY, booking_id INTEGER NOT NULL, transaction_type TEXT, amount INTEGER,
  status TEXT, payment_method_id TEXT);
CREATE TABLE cancellations (id INTEGER PRIMARY KEY, booking_id INTEGER NOT NULL, refund_amount INTEGER,
  penalty_amount INTEGER, reason TEXT);
CREATE TABLE wishlists (id INTEGER PRIMARY KEY, user_id TEXT NOT NULL, name TEXT NOT NULL);
CREATE TABLE saved_properties (id INTEGER PRIMARY KEY, wishlist_id INTEGER NOT NULL, hotel_id TEXT NOT NULL, notes TEXT);
CREATE TABLE order_tokens (token TEXT PRIMARY KEY, room_id TEXT, check_in TEXT, check_out TEXT, guests INTEGER,
  total_price INTEGER, is_used INTEGER);
CREATE TABLE activities (id INTEGER PRIMARY KEY, action TEXT, detail TEXT);
"""
CITIES = ("Lisbon", "Bergen", "Trieste", "Galway")
FIRST = ("Grand", "Old", "Blue", "Quiet", "North", "Salt", "Lantern", "Garden")
LAST = ("Quay", "Anchor", "Harbour", "Lighthouse", "Pier", "Mooring", "Tide", "Regatta")
AMENITIES = ("pool", "spa", "parking", "gym", "bar", "pets allowed", "airport shuttle")
ROOMS = (("Single", 1), ("Double", 2), ("Family", 4))
SENTENCES = (
    "The rooms look over the water, and the windows keep the noise of the quay outside.",
    "Breakfast is served until eleven, with bread that comes warm from the bakery next door.",
    "The lift was slow on the second day, but the staff carried our bags up without a word.",
    "We would come back for the evening light on the terrace and for the short walk to the ferry.",
    "The bed was hard, the shower was hot, and the bill held nothing that we had not ordered.",
)


def make_seed(path, data_version):
    """Writes the database at `path`. The same version gives the same rows."""
    rng = random.Random(f"{ENV_KEY}:{data_version}")
    db = sqlite3.connect(path)
    db.executescript(SCHEMA)
    add = lambda table, rows: db.executemany(
        f"INSERT INTO {table} VALUES ({','.join('?' * len(rows[0]))})", rows
    )
    names = ("Ada Marsh", "Bo Lind", "Cleo Reyes")
    add("users", [(f"user_{n}", name, f"user{n}@mail.test") for n, name in enumerate(names, 1)])
    add(
        "payment_methods",
        [
            (f"card_{n}{kind}", f"user_{n}", card, f"{rng.randrange(10000):04d}", int(kind == "a"))
            for n in (1, 2, 3)
            for kind, card in (("a", "Visa"), ("b", "Mastercard"))
        ],
    )
    hotels, rooms, amenities, reviews = [], [], [], []
    for c, city in enumerate(CITIES):
        # No two hotels of a city have the same rating, so that "the best rated" names one.
        ratings = rng.sample(range(60, 98), 8)
        for h in range(8):
            hotel = f"h_{rng.randrange(16**6):06x}"
            hotels.append(
                (hotel, f"{FIRST[h]} {LAST[(h + c) % 8]}", city, 3 + rng.randrange(3), ratings[h] / 10, f"{h + 1} Quay Street, {city}")
            )
            amenities += [(hotel, each) for each in sorted(rng.sample(AMENITIES, 3))]
            base = 60 + 5 * rng.randrange(20)
            for r, (name, capacity) in enumerate(ROOMS):
                rooms.append((f"r_{rng.randrange(16**6):06x}", hotel, name, capacity, base + 35 * r, 2))
            for _ in range(6):
                text = " ".join(rng.sample(SENTENCES, 4))
                reviews.append((len(reviews) + 1, hotel, f"Guest {rng.randrange(900) + 100}", 5 + rng.randrange(6), text))
    add("hotels", hotels)
    add("rooms", rooms)
    add("hotel_amenities", amenities)
    add("reviews", reviews)
    bookings, transactions = [], []
    for n in range(36):
        room = rng.choice(rooms)
        day, nights = 1 + rng.randrange(24), 1 + rng.randrange(4)
        total, paid = room[4] * nights, n % 2 == 0
        bookings.append(
            (n + 1, f"HB{rng.randrange(16**6):06X}", f"user_{1 if n < 28 else 2}", room[1], room[0])
            + (f"2026-04-{day:02d}", f"2026-04-{day + nights:02d}", 1, total)
            + (("confirmed", "paid") if paid else ("pending", "unpaid"))
            + ("2026-02-10",)
        )
        if paid:
            transactions.append((len(transactions) + 1, n + 1, "Payment", total, "Success", "card_1a"))
    add("bookings", bookings)
    add("transactions", transactions)
    add("wishlists", [(1, "user_1", "Summer"), (2, "user_1", "Work trips"), (3, "user_2", "Someday")])
    add("saved_properties", [(1, 1, hotels[0][0], ""), (2, 3, hotels[1][0], "")])
    db.commit()
    db.close()


class Seeds:
    """One file per data version, made on first use."""

    def __init__(self, folder):
        self.folder = folder

    def copy(self, data_version, target):
        seed = os.path.join(self.folder, f"seed-{data_version}.sqlite")
        if not os.path.exists(seed):
            make_seed(seed, data_version)
        shutil.copyfile(seed, target)


class DatabaseLocks:
    """
    Exclusive locks on database files, each held by a connection of its own. With the rollback journal such a lock keeps readers out, too:
    each query of another connection, in any process, answers "database is locked".
    """

    def __init__(self, paths):
        self.paths = paths
        self.holds = 0
        self.connections = []

    def take(self):
        self.holds += 1
        if self.holds > 1:
            return
        for path in self.paths:
            connection = sqlite3.connect(path, timeout=5, isolation_level=None)
            connection.execute("BEGIN EXCLUSIVE")
            self.connections.append(connection)

    def release(self):
        if self.holds == 0:
            return
        self.holds -= 1
        if self.holds == 0:
            self.drop()

    def drop(self):
        for connection in self.connections:
            connection.close()
        self.connections, self.holds = [], 0
