"""What a user of the site can do, as MCP tools. The same calls on the same database give the same results and ids."""

import hashlib
import sqlite3
from contextlib import contextmanager
from datetime import date

from fastmcp import FastMCP
from fastmcp.exceptions import ToolError
from fastmcp.server.dependencies import get_http_request

PAGE = 10


class World:
    """One call's view of an instance's database and of its user."""

    def __init__(self, db, variables):
        self.db = db
        self.user = variables["LOGGED_IN_USER"]
        self.today = variables["CURRENT_DATE"]

    def all(self, sql, *args):
        return [dict(row) for row in self.db.execute(sql, args)]

    def one(self, missing, sql, *args):
        rows = self.all(sql, *args)
        if not rows:
            raise ToolError(missing)
        return rows[0]

    def add(self, table, **values):
        """The id of the new row: one more than the highest."""
        [(highest,)] = self.db.execute(f"SELECT COALESCE(MAX(id), 0) FROM {table}")
        values = {"id": highest + 1, **values}
        self.db.execute(f"INSERT INTO {table} ({','.join(values)}) VALUES ({','.join('?' * len(values))})", [*values.values()])
        return highest + 1

    def note(self, action, detail):
        self.add("activities", action=action, detail=detail)

    def hotel(self, hotel_id):
        return self.one(f"Hotel '{hotel_id}' not found", "SELECT * FROM hotels WHERE id = ?", hotel_id)

    def booking(self, booking_id):
        sql = "SELECT * FROM bookings WHERE id = ? AND user_id = ?"
        return self.one(f"Booking {booking_id} not found", sql, booking_id, self.user)

    def free_units(self, room, check_in, check_out):
        sql = "SELECT COUNT(*) AS n FROM bookings WHERE room_id = ? AND status != 'cancelled' AND check_in < ? AND check_out > ?"
        return room["units"] - self.all(sql, room["id"], check_out, check_in)[0]["n"]

    def nights(self, check_in, check_out):
        try:
            first, last = date.fromisoformat(check_in), date.fromisoformat(check_out)
        except ValueError as error:
            raise ToolError("- check_in, check_out: must be dates in the form YYYY-MM-DD") from error
        if first < date.fromisoformat(self.today):
            raise ToolError(f"- check_in: must not be before {self.today}")
        if last <= first:
            raise ToolError("- check_out: must be after check_in")
        return (last - first).days


@contextmanager
def world():
    instance = get_http_request().scope["fleet_instance"]
    db = sqlite3.connect(instance.path("current"), timeout=0)
    db.row_factory = sqlite3.Row
    try:
        db.execute("PRAGMA synchronous = OFF")
        yield World(db, instance.variables)
        db.commit()
    except sqlite3.Error as error:
        raise ToolError(str(error)) from error
    finally:
        db.close()


def without_output_schema(server):
    """Decorator of tools. To check each result against a schema would take half of a call's time."""
    return lambda function: server.tool(function, output_schema=None)


def booking_tools():
    server = FastMCP("harbour")
    tool = without_output_schema(server)

    @tool
    async def search_hotels(city: str, min_rating: float = 0, page: int = 1) -> dict:
        """Hotels of a city, the best rated first, 5 on a page. `total` counts all of them."""
        with world() as w:
            found = w.all("SELECT * FROM hotels WHERE city = ? AND rating >= ? ORDER BY rating DESC, id", city, min_rating)
            return {"total": len(found), "page": page, "hotels": found[5 * (page - 1) : 5 * page]}

    @tool
    async def get_hotel(hotel_id: str) -> dict:
        """A hotel with its rooms (price per night) and amenities."""
        with world() as w:
            amenities = w.all("SELECT amenity FROM hotel_amenities WHERE hotel_id = ? ORDER BY amenity", hotel_id)
            rooms = w.all("SELECT id, name, capacity, price FROM rooms WHERE hotel_id = ? ORDER BY price, id", hotel_id)
            return {**w.hotel(hotel_id), "amenities": [each["amenity"] for each in amenities], "rooms": rooms}

    @tool
    async def list_reviews(city: str) -> dict:
        """All reviews of all hotels in a city. The answer is long."""
        with world() as w:
            sql = "SELECT h.name AS hotel, r.* FROM reviews r JOIN hotels h ON h.id = r.hotel_id WHERE h.city = ? ORDER BY r.id"
            return {"reviews": w.all(sql, city)}

    @tool
    async def check_availability(hotel_id: str, check_in: str, check_out: str, guests: int = 1) -> dict:
        """Rooms of a hotel that are free from check_in to check_out (YYYY-MM-DD) and hold the guests, the cheapest first."""
        with world() as w:
            nights = w.nights(check_in, check_out)
            hotel = w.hotel(hotel_id)
            rooms = w.all("SELECT * FROM rooms WHERE hotel_id = ? AND capacity >= ? ORDER BY price, id", hotel["id"], guests)
            free = [(room, w.free_units(room, check_in, check_out)) for room in rooms]
            return {
                "hotel_id": hotel_id,
                "rooms": [
                    {"room_id": r["id"], "name": r["name"], "capacity": r["capacity"], "total_price": r["price"] * nights, "free": n}
                    for r, n in free
                    if n > 0
                ],
            }

    @tool
    async def preview_booking(room_id: str, check_in: str, check_out: str, guests: int = 1) -> dict:
        """The total price of a stay and an order token, which create_booking needs."""
        with world() as w:
            nights = w.nights(check_in, check_out)
            room = w.one(f"Room '{room_id}' not found", "SELECT * FROM rooms WHERE id = ?", room_id)
            if guests > room["capacity"]:
                raise ToolError(f"- guests: the room holds {room['capacity']}")
            if w.free_units(room, check_in, check_out) <= 0:
                raise ToolError("409: the room is not available on these dates")
            number = w.all("SELECT COUNT(*) AS n FROM order_tokens")[0]["n"]
            token = "tok_" + hashlib.sha256(f"{number} {room_id} {check_in}".encode()).hexdigest()[:16]
            total = room["price"] * nights
            w.db.execute("INSERT INTO order_tokens VALUES (?,?,?,?,?,?,0)", (token, room_id, check_in, check_out, guests, total))
            return {"order_token": token, "total_price": total, "nights": nights}

    @tool
    async def create_booking(order_token: str) -> dict:
        """Books the stay of an order token. The booking is pending until it is paid."""
        with world() as w:
            order = w.one("Order token not found", "SELECT * FROM order_tokens WHERE token = ?", order_token)
            if order["is_used"]:
                raise ToolError("409: the order token is used")
            room = w.all("SELECT * FROM rooms WHERE id = ?", order["room_id"])[0]
            w.db.execute("UPDATE order_tokens SET is_used = 1 WHERE token = ?", (order_token,))
            booking = w.add(
                "bookings",
                reference="HB" + hashlib.sha256(order_token.encode()).hexdigest()[:6].upper(),
                user_id=w.user,
                hotel_id=room["hotel_id"],
                room_id=room["id"],
                check_in=order["check_in"],
                check_out=order["check_out"],
                guests=order["guests"],
                total_price=order["total_price"],
                status="pending",
                payment_status="unpaid",
                created_at=w.today,
            )
            w.note("book", str(booking))
            return w.booking(booking)

    @tool
    async def pay_booking(booking_id: int, payment_method_id: str) -> dict:
        """Pays a pending booking with one of the user's payment methods, and confirms it."""
        with world() as w:
            booking = w.booking(booking_id)
            sql = "SELECT * FROM payment_methods WHERE id = ? AND user_id = ?"
            method = w.one(f"Payment method '{payment_method_id}' not found", sql, payment_method_id, w.user)
            if booking["status"] != "pending":
                raise ToolError(f"409: booking {booking_id} is {booking['status']}")
            w.db.execute("UPDATE bookings SET status = 'confirmed', payment_status = 'paid' WHERE id = ?", (booking_id,))
            facts = {"transaction_type": "Payment", "amount": booking["total_price"], "status": "Success"}
            number = w.add("transactions", booking_id=booking_id, **facts, payment_method_id=method["id"])
            w.note("pay", str(booking_id))
            return {"transaction_id": number, "amount": booking["total_price"], "status": "Success"}

    @tool
    async def cancel_booking(booking_id: int, reason: str) -> dict:
        """Cancels a booking of the user. A paid one is refunded for nine tenths."""
        with world() as w:
            booking = w.booking(booking_id)
            if booking["status"] == "cancelled":
                raise ToolError(f"409: booking {booking_id} is cancelled")
            paid = booking["total_price"] if booking["payment_status"] == "paid" else 0
            w.db.execute("UPDATE bookings SET status = 'cancelled' WHERE id = ?", (booking_id,))
            amounts = {"refund_amount": paid - paid // 10, "penalty_amount": paid // 10}
            w.add("cancellations", booking_id=booking_id, **amounts, reason=reason)
            w.note("cancel", str(booking_id))
            return {"booking_id": booking_id, "status": "cancelled", **amounts}

    @tool
    async def change_guests(booking_id: int, guests: int) -> dict:
        """Changes the number of guests of a booking."""
        with world() as w:
            booking = w.booking(booking_id)
            room = w.all("SELECT * FROM rooms WHERE id = ?", booking["room_id"])[0]
            if not 1 <= guests <= room["capacity"]:
                raise ToolError(f"- guests: must be between 1 and {room['capacity']}")
            w.db.execute("UPDATE bookings SET guests = ? WHERE id = ?", (guests, booking_id))
            w.note("change", str(booking_id))
            return w.booking(booking_id)

    @tool
    async def list_bookings(status: str = "", page: int = 1) -> dict:
        """The user's bookings, the newest first, 10 on a page. `status`: pending, confirmed or cancelled."""
        with world() as w:
            sql = "SELECT * FROM bookings WHERE user_id = ? AND (? = '' OR status = ?) ORDER BY id DESC"
            found = w.all(sql, w.user, status, status)
            return {"total": len(found), "page": page, "bookings": found[PAGE * (page - 1) : PAGE * page]}

    @tool
    async def create_wishlist(name: str) -> dict:
        """Makes an empty wishlist."""
        with world() as w:
            if w.all("SELECT id FROM wishlists WHERE user_id = ? AND name = ?", w.user, name):
                raise ToolError(f"409: a wishlist '{name}' exists")
            return {"wishlist_id": w.add("wishlists", user_id=w.user, name=name), "name": name}

    @tool
    async def save_property(wishlist_name: str, hotel_id: str, notes: str = "") -> dict:
        """Saves a hotel in a wishlist of the user."""
        with world() as w:
            sql = "SELECT * FROM wishlists WHERE user_id = ? AND name = ?"
            wishlist = w.one(f"Wishlist '{wishlist_name}' not found", sql, w.user, wishlist_name)
            saved = w.add("saved_properties", wishlist_id=wishlist["id"], hotel_id=w.hotel(hotel_id)["id"], notes=notes)
            return {"saved_id": saved, "wishlist_id": wishlist["id"]}

    @tool
    async def get_profile() -> dict:
        """The user with the payment methods."""
        with world() as w:
            user = w.one("Not logged in", "SELECT * FROM users WHERE id = ?", w.user)
            methods = w.all("SELECT id, card_type, last_four, is_default FROM payment_methods WHERE user_id = ? ORDER BY id", w.user)
            return {**user, "today": w.today, "payment_methods": methods}

    return server
