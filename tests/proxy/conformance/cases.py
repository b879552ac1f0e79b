"""Cases from RFC 9111, 9110, 5861, 8246, 9211 and 9213, each with the section that it is from."""

from __future__ import annotations

from typing import Any

from tests.proxy.conformance.case import Case, Fields, Level, Response, Step, fields

REQUIRED, OPTIONAL = Level.REQUIRED, Level.OPTIONAL
Given = dict[str, str] | list[tuple[str, str]]
FRESH = {"Cache-Control": "max-age=100"}
TAG = {**FRESH, "ETag": '"a"'}
OLD = "Mon, 02 Jan 2023 03:04:05 GMT"


def origin(values: Given | None = None, status: int = 200, **more: Any) -> Response:
    return Response(fields(values), status, **more)


def step(response: Response | None = None, request: Given | None = None, **more: Any) -> Step:
    return Step(fields(request), response=response or origin({"Cache-Control": "no-store"}), **more)


def reused(name: str, rfc: str, values: Given, *, level: Level = OPTIONAL, wait: float = 0.0, **more: Any) -> Case:
    """A response with these fields answers a second request."""
    status = more.pop("status", 200)
    second = more.pop("request", None)
    first = step(origin(values, status), more.pop("first", None))
    return Case(name, rfc, level, (first, step(None, second, wait=wait, asked=False, served=0, **more)))


def not_reused(name: str, rfc: str, values: Given, *, level: Level = REQUIRED, wait: float = 0.0, **more: Any) -> Case:
    """A response with these fields does not answer a second request without the origin."""
    status = more.pop("status", 200)
    second = more.pop("request", None)
    first = step(origin(values, status), more.pop("first", None))
    return Case(name, rfc, level, (first, step(None, second, wait=wait, asked=True, **more)))


def stored_then(name: str, rfc: str, level: Level, values: Given, last: Step, **more: Any) -> Case:
    """A response is stored, and then something is expected."""
    return Case(name, rfc, level, (step(origin(values, **more)), last))


FRESHNESS = [
    reused("max-age", "9111 4.2.1", FRESH),
    reused("s-maxage", "9111 5.2.2.10", {"Cache-Control": "s-maxage=100"}),
    reused("s-maxage above max-age=0", "9111 5.2.2.10", {"Cache-Control": "max-age=0, s-maxage=100"}),
    reused("Expires", "9111 5.3", {"Expires": "{now+100}", "Date": "{now+0}"}),
    reused("Expires counted from Date", "9111 4.2.1", {"Expires": "{now+10}", "Date": "{now-5}"}),
    reused("max-age above a past Expires", "9111 5.3", {**FRESH, "Expires": OLD}),
    reused("max-age above an invalid Expires", "9111 5.3", {**FRESH, "Expires": "0"}),
    reused("directives in any case", "9111 5.2", {"Cache-Control": "MaX-AgE=100"}),
    reused("a quoted max-age", "9111 5.2", {"Cache-Control": 'max-age="100"'}),
    reused("unknown directives", "9111 5.2.3", {"Cache-Control": "frob, x=y, max-age=100"}),
    reused("a quoted comma", "9111 5.2.3", {"Cache-Control": 'x="y, no-store", max-age=100'}),
    reused("max-age of 4294967296", "9111 1.2.2", {"Cache-Control": "max-age=4294967296"}),
    reused("max-age of 20 digits", "9111 1.2.2", {"Cache-Control": "max-age=99999999999999999999"}),
    reused("max-age with a zero before", "9111 1.2.2", {"Cache-Control": "max-age=0100"}),
    reused("a heuristic for 200", "9111 4.2.2", {"Last-Modified": "{now-100000}"}),
    reused("a heuristic for 404", "9111 4.2.2", {"Last-Modified": "{now-100000}"}, status=404),
    reused("a heuristic for 301", "9111 4.2.2", {"Last-Modified": "{now-100000}", "Location": "/"}, status=301),
    reused("a heuristic for 410", "9111 4.2.2", {"Last-Modified": "{now-100000}"}, status=410),
    *(
        reused(f"max-age for {status}", "9111 3", FRESH, status=status)
        for status in (203, 204, 300, 301, 302, 307, 308, 400, 403, 404, 405, 410, 414, 418, 500, 501, 503)
    ),
    not_reused("max-age=0", "9111 4.2", {"Cache-Control": "max-age=0"}),
    not_reused("max-age that has passed", "9111 4.2", {"Cache-Control": "max-age=1"}, wait=2.2),
    not_reused("s-maxage that has passed", "9111 5.2.2.10", {"Cache-Control": "max-age=100, s-maxage=1"}, wait=2.2),
    not_reused("s-maxage=0 above max-age", "9111 5.2.2.10", {"Cache-Control": "max-age=100, s-maxage=0"}),
    not_reused("max-age=0 above Expires", "9111 5.3", {"Cache-Control": "max-age=0", "Expires": "{now+100}"}),
    not_reused("a past Expires", "9111 5.3", {"Expires": OLD}),
    not_reused("Expires at Date", "9111 5.3", {"Expires": "{now+0}", "Date": "{now+0}"}),
    not_reused("Expires before Date in the future", "9111 4.2.1", {"Expires": "{now+100}", "Date": "{now+200}"}),
    not_reused("Expires: 0", "9111 5.3", [("Expires", "0"), ("Last-Modified", "{now-100000}")]),
    not_reused("Expires: -1", "9111 5.3", [("Expires", "-1"), ("Last-Modified", "{now-100000}")]),
    not_reused("Expires in words", "9111 5.3", [("Expires", "tomorrow"), ("Last-Modified", "{now-100000}")]),
    not_reused("a status without heuristic", "9111 3", {"Last-Modified": "{now-100000}"}, status=599),
    not_reused("302 without freshness", "9111 3", {"Last-Modified": "{now-100000}", "Location": "/"}, status=302),
    not_reused("500 without freshness", "9111 3", {"Last-Modified": "{now-100000}"}, status=500),
    not_reused(
        "an invalid max-age is stale",
        "9111 4.2.1",
        [("Cache-Control", "max-age=x"), ("Last-Modified", OLD)],
        level=OPTIONAL,
    ),
    not_reused(
        "a negative max-age is stale",
        "9111 4.2.1",
        [("Cache-Control", "max-age=-5"), ("Last-Modified", OLD)],
        level=OPTIONAL,
    ),
    not_reused(
        "a max-age without value is stale",
        "9111 4.2.1",
        [("Cache-Control", "max-age"), ("Last-Modified", OLD)],
        level=OPTIONAL,
    ),
    not_reused(
        "Expires with another zone is none", "9111 4.2", {"Expires": "Fri, 01 Jan 2100 00:00:00 EST"}, level=OPTIONAL
    ),
]

AGE = [
    stored_then("Age in a reused response", "9111 4", REQUIRED, FRESH, step(wait=1.2, asked=False, age=(1, 3))),
    stored_then(
        "Age counts on", "9111 4.2.3", REQUIRED, {**FRESH, "Age": "30"}, step(wait=1.2, asked=False, age=(31, 33))
    ),
    stored_then(
        "an old Date is an age", "9111 4.2.3", REQUIRED, {**FRESH, "Date": "{now-30}"}, step(asked=False, age=(29, 33))
    ),
    not_reused("Age beyond max-age", "9111 4.2.3", {**FRESH, "Age": "200"}),
    not_reused("Age at max-age", "9111 4.2.3", {**FRESH, "Age": "100"}),
    not_reused("a Date beyond max-age", "9111 4.2.3", {**FRESH, "Date": "{now-200}"}),
    not_reused("Age beyond Expires", "9111 4.2.3", {"Expires": "{now+100}", "Date": "{now+0}", "Age": "200"}),
    not_reused("an Age of 20 digits", "9111 1.2.2", {**FRESH, "Age": "9" * 20}),
    not_reused("the first of several Ages", "9111 5.1", {**FRESH, "Age": "200, 0"}),
    not_reused("the first line of Age", "9111 5.1", [*FRESH.items(), ("Age", "200"), ("Age", "0")]),
    reused("an Age in words", "9111 5.1", {**FRESH, "Age": "old"}),
    reused("a negative Age", "9111 5.1", {**FRESH, "Age": "-200"}),
    reused("an Age with a fraction", "9111 5.1", {**FRESH, "Age": "200.5"}),
    reused("a later Age of several", "9111 5.1", {**FRESH, "Age": "0, 200"}),
    reused("a Date in the future", "9111 4.2.3", {**FRESH, "Date": "{now+500}"}),
    Case(
        "Date where there is none",
        "9110 6.6.1",
        REQUIRED,
        (step(origin([*FRESH.items(), ("Date", "")]), has=(("Date", ""),)),),
    ),
]

DIRECTIVES = [
    not_reused("no-store", "9111 5.2.2.5", {"Cache-Control": "no-store, max-age=100"}),
    not_reused("no-store in any case", "9111 5.2.2.5", {"Cache-Control": "max-age=100, No-StOrE"}),
    not_reused(
        "no-store on a second line", "9111 5.2.2.5", [("Cache-Control", "max-age=100"), ("Cache-Control", "no-store")]
    ),
    not_reused("private", "9111 5.2.2.7", {"Cache-Control": "private, max-age=100"}),
    not_reused("private with s-maxage", "9111 5.2.2.7", {"Cache-Control": "private, s-maxage=100"}),
    not_reused("no-cache", "9111 5.2.2.4", {"Cache-Control": "no-cache, max-age=100"}),
    not_reused("no-cache with Expires", "9111 5.2.2.4", {"Cache-Control": "no-cache", "Expires": "{now+100}"}),
    stored_then(
        "no-cache is revalidated",
        "9111 5.2.2.4",
        OPTIONAL,
        {"Cache-Control": "no-cache", "ETag": '"a"'},
        step(
            origin({"Cache-Control": "no-cache", "ETag": '"a"'}, confirms=True), asked=True, conditional=True, served=0
        ),
    ),
    stored_then(
        "no-cache of one field",
        "9111 5.2.2.4",
        REQUIRED,
        {"Cache-Control": 'max-age=100, no-cache="X-Mine"', "X-Mine": "1"},
        step(origin({**FRESH, "X-Other": "1"}), lacks=("X-Mine",)),
    ),
    stored_then(
        "private of one field",
        "9111 5.2.2.7",
        REQUIRED,
        {"Cache-Control": 'max-age=100, private="X-Mine"', "X-Mine": "1"},
        step(origin({**FRESH, "X-Other": "1"}), lacks=("X-Mine",)),
    ),
    reused("private of one field, the rest reused", "9111 5.2.2.7", {"Cache-Control": 'max-age=100, private="X-Mine"'}),
    not_reused(
        "an unclosed quote hides no no-store",
        "9111 5.2",
        {"Cache-Control": 'x="y, no-store, max-age=100'},
        level=OPTIONAL,
    ),
    reused("must-understand", "9111 5.2.2.3", {"Cache-Control": "must-understand, no-store, max-age=100"}),
    reused("immutable", "8246 2", {"Cache-Control": "max-age=100, immutable"}, request={"Cache-Control": "max-age=0"}),
    *(
        not_reused(
            f"must not be stale with {directive}", "9111 4.2.4", {"Cache-Control": f"max-age=1, {directive}"}, wait=2.2
        )
        for directive in ("must-revalidate", "proxy-revalidate")
    ),
    *(
        stored_then(
            f"no stale response with {directive} where the origin is gone",
            rfc,
            REQUIRED,
            {"Cache-Control": f"{directive}, stale-if-error=100"},
            step(origin(status=0), wait=2.2, unserved=0),
        )
        for directive, rfc in (
            ("max-age=1, must-revalidate", "9111 5.2.2.2"),
            ("max-age=1, proxy-revalidate", "9111 5.2.2.8"),
            ("s-maxage=1", "9111 5.2.2.10"),
        )
    ),
]

AUTHORIZED = {"Authorization": "Basic eDp5"}
AUTHORIZATION = [
    not_reused("a response to Authorization", "9111 3.5", FRESH, first=AUTHORIZED, request=AUTHORIZED),
    not_reused("the same for one without", "9111 3.5", FRESH, first=AUTHORIZED),
    not_reused("with Expires", "9111 3.5", {"Expires": "{now+100}"}, first=AUTHORIZED),
    reused("public", "9111 3.5", {"Cache-Control": "public, max-age=100"}, first=AUTHORIZED),
    reused("s-maxage", "9111 3.5", {"Cache-Control": "s-maxage=100"}, first=AUTHORIZED),
    reused("must-revalidate", "9111 3.5", {"Cache-Control": "max-age=100, must-revalidate"}, first=AUTHORIZED),
]

REQUESTS = [
    not_reused("no-cache of a request", "9111 5.2.1.4", FRESH, request={"Cache-Control": "no-cache"}, level=OPTIONAL),
    not_reused("max-age=0 of a request", "9111 5.2.1.1", FRESH, request={"Cache-Control": "max-age=0"}, level=OPTIONAL),
    not_reused(
        "max-age=1 of a request",
        "9111 5.2.1.1",
        FRESH,
        request={"Cache-Control": "max-age=1"},
        wait=2.2,
        level=OPTIONAL,
    ),
    not_reused(
        "min-fresh of a request", "9111 5.2.1.3", FRESH, request={"Cache-Control": "min-fresh=500"}, level=OPTIONAL
    ),
    not_reused("no-store of a request", "9111 5.2.1.5", FRESH, first={"Cache-Control": "no-store"}, level=OPTIONAL),
    reused("max-age of a request", "9111 5.2.1.1", FRESH, request={"Cache-Control": "max-age=50"}),
    reused("min-fresh of a request that holds", "9111 5.2.1.3", FRESH, request={"Cache-Control": "min-fresh=50"}),
    reused(
        "max-stale",
        "9111 5.2.1.2",
        {"Cache-Control": "max-age=1"},
        wait=2.2,
        request={"Cache-Control": "max-stale=100"},
    ),
    reused("only-if-cached with a fresh one", "9111 5.2.1.7", FRESH, request={"Cache-Control": "only-if-cached"}),
    Case(
        "only-if-cached with nothing",
        "9111 5.2.1.7",
        OPTIONAL,
        (step(None, {"Cache-Control": "only-if-cached"}, asked=False, status=504),),
    ),
    stored_then(
        "max-stale does not reach beyond must-revalidate",
        "9111 5.2.2.2",
        REQUIRED,
        {"Cache-Control": "max-age=1, must-revalidate"},
        step(None, {"Cache-Control": "max-stale"}, wait=2.2, asked=True, served=1),
    ),
]


def vary(
    name: str, level: Level, line: str | Fields, one: Given, other: Given, same: bool, rfc: str = "9111 4.1"
) -> Case:
    lines = (("Vary", line),) if isinstance(line, str) else line
    told = [*FRESH.items(), *lines]
    second = step(origin(told), other, asked=not same, served=0 if same else 1)
    return Case(name, rfc, level, (step(origin(told), one), second))


VARY = [
    vary("the same field", OPTIONAL, "X-V", {"X-V": "1"}, {"X-V": "1"}, True),
    vary("another value", REQUIRED, "X-V", {"X-V": "1"}, {"X-V": "2"}, False),
    vary("the field is missing", REQUIRED, "X-V", {"X-V": "1"}, {}, False),
    vary("the field was missing", REQUIRED, "X-V", {}, {"X-V": "1"}, False),
    vary("missing in both", OPTIONAL, "X-V", {}, {}, True),
    vary("two fields", REQUIRED, "X-V, X-W", {"X-V": "1", "X-W": "1"}, {"X-V": "1", "X-W": "2"}, False),
    vary(
        "two lines",
        REQUIRED,
        (("Vary", "X-V"), ("Vary", "X-W")),
        {"X-V": "1", "X-W": "1"},
        {"X-V": "1", "X-W": "2"},
        False,
    ),
    vary("names in any case", REQUIRED, "x-v", {"X-V": "1"}, {"X-V": "2"}, False),
    vary("a star", REQUIRED, "*", {}, {}, False),
    vary("a star among others", REQUIRED, "X-V, *", {"X-V": "1"}, {"X-V": "1"}, False),
    vary("a star on a second line", REQUIRED, (("Vary", "X-V"), ("Vary", "*")), {"X-V": "1"}, {"X-V": "1"}, False),
    vary("space in a list", OPTIONAL, "X-V", {"X-V": "1, 2"}, {"X-V": "1,  2"}, True),
    vary("lines and a list", OPTIONAL, "X-V", [("X-V", "1"), ("X-V", "2")], {"X-V": "1, 2"}, True),
    vary(
        "Accept-Encoding in another order",
        OPTIONAL,
        "Accept-Encoding",
        {"Accept-Encoding": "gzip, br"},
        {"Accept-Encoding": "br, gzip"},
        True,
    ),
    vary(
        "Accept-Language in another case",
        OPTIONAL,
        "Accept-Language",
        {"Accept-Language": "de, en"},
        {"Accept-Language": "DE, EN"},
        True,
    ),
    Case(
        "variants beside one another",
        "9111 4.1",
        OPTIONAL,
        (
            step(origin({**FRESH, "Vary": "X-V"}), {"X-V": "1"}),
            step(origin({**FRESH, "Vary": "X-V"}), {"X-V": "2"}),
            step(None, {"X-V": "1"}, asked=False, served=0),
        ),
    ),
]

CONFIRMED = origin(
    {**TAG, "X-New": "2"},
    confirms=True,
    confirmation=(("ETag", '"a"'), ("X-New", "2"), ("Cache-Control", "max-age=100")),
)
SHORT = {"Cache-Control": "max-age=1", "ETag": '"a"'}
DATED = {"Cache-Control": "max-age=1", "Last-Modified": OLD}
VALIDATION = [
    stored_then(
        "If-None-Match",
        "9111 4.3.1",
        OPTIONAL,
        SHORT,
        step(CONFIRMED, wait=2.2, asked=True, served=0, sent=(("If-None-Match", '"a"'),)),
    ),
    stored_then(
        "If-None-Match with a weak tag",
        "9111 4.3.1",
        OPTIONAL,
        {**SHORT, "ETag": 'W/"a"'},
        step(origin({**SHORT, "ETag": 'W/"a"'}, confirms=True), wait=2.2, served=0, sent=(("If-None-Match", 'W/"a"'),)),
    ),
    stored_then(
        "If-Modified-Since",
        "9111 4.3.1",
        OPTIONAL,
        DATED,
        step(origin(DATED, confirms=True), wait=2.2, asked=True, served=0, sent=(("If-Modified-Since", ""),)),
    ),
    stored_then(
        "a 304 for the cache is not the client's", "9111 4.3.3", REQUIRED, SHORT, step(CONFIRMED, wait=2.2, status=200)
    ),
    stored_then(
        "a new response replaces the stale one",
        "9111 4.3.3",
        REQUIRED,
        SHORT,
        step(origin({**TAG, "ETag": '"b"'}), wait=2.2, status=200, served=1),
    ),
    stored_then(
        "an error in validation is passed on",
        "9111 4.3.3",
        OPTIONAL,
        {**SHORT, "Cache-Control": "max-age=1, must-revalidate"},
        step(origin(status=503), wait=2.2, status=503),
    ),
    Case(
        "fresh again after a 304",
        "9111 4.3.4",
        OPTIONAL,
        (step(origin(SHORT)), step(CONFIRMED, wait=2.2), step(asked=False, served=0)),
    ),
    Case(
        "a 304 updates fields",
        "9111 3.2",
        REQUIRED,
        (step(origin({**SHORT, "X-New": "1"})), step(CONFIRMED, wait=2.2, served=0, has=(("X-New", "2"),))),
    ),
    Case(
        "fields updated by a 304 stay",
        "9111 3.2",
        REQUIRED,
        (
            step(origin({**SHORT, "X-New": "1"})),
            step(CONFIRMED, wait=2.2, served=0),
            step(asked=False, has=(("X-New", "2"),)),
        ),
    ),
    Case(
        "a 304 does not change Content-Length",
        "9111 3.2",
        REQUIRED,
        (
            step(origin(SHORT, body="12345")),
            step(
                origin(SHORT, confirms=True, confirmation=(("ETag", '"a"'), ("Content-Length", "3"))),
                wait=2.2,
                status=200,
                body="12345",
            ),
        ),
    ),
    Case(
        "a 304 that is about something else",
        "9111 4.3.4",
        REQUIRED,
        (
            step(origin({**SHORT, "X-New": "1"})),
            step(origin({"ETag": '"b"', "X-New": "2"}, status=304), wait=2.2, conditional=True),
            step(origin(FRESH), lacks=("X-New",)),
        ),
    ),
    *(
        stored_then(
            f"304 for {name}", rfc, OPTIONAL, TAG | {"Last-Modified": OLD}, step(None, request, asked=False, status=304)
        )
        for name, rfc, request in (
            ("If-None-Match", "9110 13.1.2", {"If-None-Match": '"a"'}),
            ("a weak If-None-Match", "9110 13.1.2", {"If-None-Match": 'W/"a"'}),
            ("one of several", "9110 13.1.2", {"If-None-Match": '"x", "a"'}),
            ("a star", "9110 13.1.2", {"If-None-Match": "*"}),
            ("If-Modified-Since", "9110 13.1.3", {"If-Modified-Since": "{now+0}"}),
            (
                "If-None-Match above If-Modified-Since",
                "9110 13.2.2",
                {"If-None-Match": '"a"', "If-Modified-Since": "Sun, 01 Jan 2023 03:04:05 GMT"},
            ),
        )
    ),
    *(
        stored_then(
            f"no 304 for {name}", rfc, REQUIRED, TAG | {"Last-Modified": OLD}, step(origin(TAG), request, status=200)
        )
        for name, rfc, request in (
            ("another tag", "9110 13.1.2", {"If-None-Match": '"b"'}),
            ("a tag in another case", "9110 13.1.2", {"If-None-Match": '"A"'}),
            ("If-Modified-Since of earlier", "9110 13.1.3", {"If-Modified-Since": "Sun, 01 Jan 2023 03:04:05 GMT"}),
            ("another tag and a later date", "9110 13.2.2", {"If-None-Match": '"b"', "If-Modified-Since": "{now+0}"}),
            ("a date that is none", "9110 13.1.3", {"If-Modified-Since": "yesterday"}),
        )
    ),
    stored_then(
        "304 by Date where there is no Last-Modified",
        "9111 4.3.2",
        OPTIONAL,
        FRESH,
        step(None, {"If-Modified-Since": "{now+5}"}, asked=False, status=304),
    ),
    stored_then(
        "conditions are for successes",
        "9110 13.2.1",
        REQUIRED,
        TAG,
        step(origin(TAG, 404), {"If-None-Match": '"a"'}, status=404),
        status=404,
    ),
    stored_then(
        "a 304 has the validator",
        "9110 15.4.5",
        REQUIRED,
        TAG,
        step(origin(TAG, confirms=True), {"If-None-Match": '"a"'}, status=304, has=(("ETag", '"a"'),)),
    ),
    Case(
        "a client's condition fills the cache",
        "9111 4.3.2",
        OPTIONAL,
        (
            step(origin(TAG, confirms=True), {"If-None-Match": '"a"'}, status=304),
            step(origin(TAG), asked=False, status=200, served=0),
        ),
    ),
    Case(
        "If-Match is the origin's",
        "9110 13.1.1",
        OPTIONAL,
        (step(origin(FRESH), {"If-Match": '"x"'}, sent=(("If-Match", '"x"'),)),),
    ),
]

HEAD = [
    stored_then("HEAD by a stored GET", "9110 9.3.2", OPTIONAL, FRESH, step(method="HEAD", asked=False, status=200)),
    stored_then(
        "HEAD has no body", "9110 9.3.2", REQUIRED, FRESH, step(origin(FRESH), method="HEAD", status=200, body="")
    ),
    Case(
        "GET is not answered by HEAD",
        "9111 4",
        REQUIRED,
        (step(origin(FRESH, body="whole"), method="HEAD"), step(origin(FRESH, body="whole"), status=200, body="whole")),
    ),
    Case(
        "HEAD updates a stale GET",
        "9111 4.3.5",
        OPTIONAL,
        (
            step(origin(SHORT, body="1")),
            step(origin({**TAG, "X-New": "1"}, body="1"), method="HEAD", wait=2.2),
            step(asked=False, status=200, body="1"),
        ),
    ),
    Case(
        "HEAD tells that GET has changed",
        "9111 4.3.5",
        OPTIONAL,
        (
            step(origin(SHORT, body="1")),
            step(origin({**TAG, "ETag": '"b"'}, body="22"), method="HEAD", wait=2.2),
            step(origin({**TAG, "ETag": '"b"'}, body="22"), asked=True, body="22"),
        ),
    ),
]

BODY = "0123456789"


def ranged(
    name: str,
    value: str,
    status: int,
    body: str | None,
    *,
    level: Level = OPTIONAL,
    rfc: str = "9110 14.2",
    **more: Any,
) -> Case:
    last = step(
        origin(TAG, body=BODY),
        {"Range": value, **more.pop("request", {})},
        asked=False,
        status=status,
        body=body,
        **more,
    )
    return stored_then(name, rfc, level, TAG | {"Last-Modified": OLD}, last, body=BODY)


RANGES = [
    ranged("the first bytes", "bytes=0-3", 206, "0123", has=(("Content-Range", "bytes 0-3/10"),)),
    ranged("bytes from a place on", "bytes=6-", 206, "6789"),
    ranged("the last bytes", "bytes=-3", 206, "789"),
    ranged("beyond the end", "bytes=8-20", 206, "89"),
    ranged("nothing there", "bytes=20-", 416, None, has=(("Content-Range", "bytes */10"),)),
    ranged("several ranges", "bytes=0-1, 4-5", 206, None),
    ranged("If-Range that holds", "bytes=0-3", 206, "0123", request={"If-Range": '"a"'}, rfc="9110 13.1.5"),
    Case(
        "a malformed range is none",
        "9110 14.2",
        OPTIONAL,
        (step(origin(TAG, body=BODY)), step(origin(TAG, body=BODY), {"Range": "bytes=x-y"}, status=200, body=BODY)),
    ),
    Case(
        "another unit is none",
        "9110 14.2",
        OPTIONAL,
        (step(origin(TAG, body=BODY)), step(origin(TAG, body=BODY), {"Range": "lines=1-2"}, status=200, body=BODY)),
    ),
    Case(
        "If-Range that does not hold",
        "9110 13.1.5",
        REQUIRED,
        (
            step(origin(TAG, body=BODY)),
            step(origin(TAG, body=BODY), {"Range": "bytes=0-3", "If-Range": '"b"'}, status=200, body=BODY),
        ),
    ),
    Case(
        "If-Range with a weak tag",
        "9110 13.1.5",
        REQUIRED,
        (
            step(origin({**TAG, "ETag": 'W/"a"'}, body=BODY)),
            step(
                origin({**TAG, "ETag": 'W/"a"'}, body=BODY),
                {"Range": "bytes=0-3", "If-Range": 'W/"a"'},
                status=200,
                body=BODY,
            ),
        ),
    ),
    Case(
        "a part is not the whole",
        "9111 3.3",
        REQUIRED,
        (
            step(origin({**TAG, "Content-Range": "bytes 7-9/10"}, 206, body="789"), {"Range": "bytes=-3"}),
            step(origin(TAG, body=BODY), status=200, body=BODY),
        ),
    ),
    Case(
        "a range that is near fills the cache",
        "9110 14.2",
        OPTIONAL,
        (
            step(origin(TAG, body=BODY), {"Range": "bytes=0-3"}),
            step(origin(TAG, body=BODY), asked=False, status=200, body=BODY),
        ),
    ),
]

METHODS = [
    *(
        Case(
            f"{method} is not stored",
            "9111 3",
            REQUIRED,
            (step(origin(FRESH), method=method), step(origin(FRESH), asked=True)),
        )
        for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS")
    ),
    *(
        Case(
            f"{method} goes to the origin",
            "9111 4",
            REQUIRED,
            (step(origin(FRESH)), step(origin(), method=method, asked=True, served=1)),
        )
        for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS")
    ),
    *(
        Case(
            f"{method} invalidates",
            "9111 4.4",
            REQUIRED,
            (step(origin(FRESH)), step(origin(), method=method, asked=True), step(origin(FRESH), asked=True)),
        )
        for method in ("POST", "PUT", "DELETE", "PATCH", "FROB")
    ),
    *(
        Case(
            f"a failed {method} does not",
            "9111 4.4",
            OPTIONAL,
            (step(origin(FRESH)), step(origin(status=500), method=method, asked=True), step(asked=False, served=0)),
        )
        for method in ("POST", "PUT", "DELETE")
    ),
    *(
        Case(
            f"POST invalidates what {field} names",
            "9111 4.4",
            OPTIONAL,
            (
                step(origin(FRESH), suffix="/x"),
                step(origin({field: "{url}/x"}, 201), method="POST"),
                step(origin(FRESH), suffix="/x", asked=True),
            ),
        )
        for field in ("Location", "Content-Location")
    ),
    Case(
        "another query is another resource",
        "9111 4",
        REQUIRED,
        (step(origin(FRESH), suffix="?a"), step(origin(FRESH), suffix="?b", asked=True, served=1)),
    ),
    Case(
        "another path is another resource",
        "9111 4",
        REQUIRED,
        (step(origin(FRESH), suffix="/a"), step(origin(FRESH), suffix="/A", asked=True, served=1)),
    ),
    Case(
        "escapes that mean the same",
        "9111 4 (3986 6.2.2)",
        OPTIONAL,
        (step(origin(FRESH), suffix="/%7ea"), step(origin(FRESH), suffix="/~a", asked=False, served=0)),
    ),
]

STALE = [
    stored_then(
        "stale-while-revalidate",
        "5861 3",
        OPTIONAL,
        {"Cache-Control": "max-age=1, stale-while-revalidate=60"},
        step(origin(FRESH), wait=2.2, served=0),
    ),
    Case(
        "it is revalidated meanwhile",
        "5861 3",
        OPTIONAL,
        (
            step(origin({"Cache-Control": "max-age=1, stale-while-revalidate=60"})),
            step(origin(FRESH), wait=2.2, served=0),
            step(wait=1.0, asked=False, served=1),
        ),
    ),
    not_reused(
        "stale-while-revalidate that has passed",
        "5861 3",
        {"Cache-Control": "max-age=1, stale-while-revalidate=1"},
        wait=4.2,
        served=1,
    ),
    *(
        stored_then(
            f"stale-if-error for {status or 'no response'}",
            "5861 4",
            OPTIONAL,
            {"Cache-Control": "max-age=1, stale-if-error=60"},
            step(origin(status=status), wait=2.2, status=200, served=0),
        )
        for status in (500, 502, 503, 504, 0)
    ),
    stored_then(
        "stale-if-error that has passed",
        "5861 4",
        REQUIRED,
        {"Cache-Control": "max-age=1, stale-if-error=1"},
        step(origin(status=503), wait=4.2, status=503),
    ),
    stored_then(
        "404 is no error",
        "5861 4",
        REQUIRED,
        {"Cache-Control": "max-age=1, stale-if-error=60"},
        step(origin(status=404), wait=2.2, status=404),
    ),
]

FIELDS = [
    Case(
        "fields of the connection are not passed on",
        "9110 7.6.1",
        REQUIRED,
        (step(origin([*FRESH.items(), ("Connection", "X-Hop"), ("X-Hop", "1")]), lacks=("X-Hop",)),),
    ),
    stored_then(
        "nor stored",
        "9111 3.1",
        REQUIRED,
        [*FRESH.items(), ("Connection", "X-Hop"), ("X-Hop", "1")],
        step(origin(FRESH), lacks=("X-Hop",)),
    ),
    Case(
        "nor sent to the origin",
        "9110 7.6.1",
        REQUIRED,
        (step(origin(FRESH), {"Connection": "close, X-Hop", "X-Hop": "1"}, unsent=("X-Hop",)),),
    ),
    stored_then(
        "other fields are stored",
        "9111 3.1",
        REQUIRED,
        {**FRESH, "X-Frob": "1"},
        step(origin({**FRESH, "X-Frob": "1"}), has=(("X-Frob", "1"),)),
    ),
    Case(
        "a body that is cut off is not stored",
        "9111 3.3",
        REQUIRED,
        (
            step(origin(TAG, body="12345", length=10)),
            step(origin(TAG, body="1234567890"), status=200, body="1234567890"),
        ),
    ),
    Case("Via to the origin", "9110 7.6.3", REQUIRED, (step(origin(FRESH), sent=(("Via", ""),)),)),
    Case("Via to the client", "9110 7.6.3", OPTIONAL, (step(origin(FRESH), has=(("Via", ""),)),)),
    stored_then("Cache-Status of a hit", "9211 2", OPTIONAL, FRESH, step(asked=False, has=(("Cache-Status", "hit"),))),
    Case("Cache-Status of a miss", "9211 2", OPTIONAL, (step(origin(FRESH), has=(("Cache-Status", "fwd="),)),)),
]

TARGETED = [
    reused(
        "CDN-Cache-Control above no-store",
        "9213 2.2",
        {"Cache-Control": "no-store", "CDN-Cache-Control": "max-age=100"},
    ),
    reused(
        "CDN-Cache-Control above max-age=0",
        "9213 2.2",
        {"Cache-Control": "max-age=0", "CDN-Cache-Control": "max-age=100"},
    ),
    not_reused("CDN-Cache-Control: no-store", "9213 2.2", {**FRESH, "CDN-Cache-Control": "no-store"}, level=OPTIONAL),
    not_reused(
        "CDN-Cache-Control above Expires",
        "9213 2.2",
        {"Expires": "{now+100}", "CDN-Cache-Control": "max-age=0"},
        level=OPTIONAL,
    ),
    not_reused(
        "an invalid CDN-Cache-Control is none",
        "9213 2.1",
        {"Cache-Control": "no-store", "CDN-Cache-Control": "max-age=100,"},
    ),
    Case(
        "it is passed on",
        "9213 2",
        OPTIONAL,
        (step(origin({**FRESH, "CDN-Cache-Control": "max-age=5"}), has=(("CDN-Cache-Control", ""),)),),
    ),
]

GROUPS: dict[str, list[Case]] = {
    "Freshness": FRESHNESS,
    "Age": AGE,
    "Directives of responses": DIRECTIVES,
    "Authorization": AUTHORIZATION,
    "Directives of requests": REQUESTS,
    "Vary": VARY,
    "Validation": VALIDATION,
    "HEAD": HEAD,
    "Ranges": RANGES,
    "Methods and invalidation": METHODS,
    "Stale responses": STALE,
    "Fields": FIELDS,
    "Targeted fields": TARGETED,
}
