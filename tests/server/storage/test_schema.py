"""State files of older versions are upgraded; files of newer versions and of other programs are refused."""

import json
import shutil
import sqlite3
from pathlib import Path

import pytest

from countless.core.budget.rule import BudgetRule
from countless.core.budget.state import SavedSite
from countless.core.coordinator import PersistentState
from countless.core.family.messages import Steps
from countless.core.family.rule import LABELS, FamilyRule
from countless.core.messages import SiteId
from countless.core.windows.rule import WindowRule
from countless.errors import InvalidParameter
from countless.server.settings import STATE_FILE
from countless.server.storage.base import (
    BudgetFields,
    Changes,
    Config,
    CounterFields,
    FamilyChanges,
    FamilyFields,
    Owned,
    PeriodFields,
    SavedBudget,
    SavedFamily,
    SavedPeriod,
    StoreError,
)
from countless.server.storage.schema import SCHEMA
from countless.server.storage.sqlite_store import SqliteStore
from countless.wire.frames import VERSION, Hello, IncarnationRetired, Join
from support.site_server import FakeConnection, site_server

FIXTURES = Path(__file__).parent / "fixtures"
FIXTURE = FIXTURES / "schema2_killed"
FIRST_SCHEMA = f"""
PRAGMA user_version = 1;
PRAGMA application_id = {0x436F756E};
CREATE TABLE counters (
    name TEXT PRIMARY KEY, alpha REAL NOT NULL, delta REAL NOT NULL, scheme TEXT NOT NULL, adversary TEXT NOT NULL,
    label_cap INTEGER NOT NULL, round INTEGER NOT NULL, published TEXT NOT NULL, departed TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE sites (
    counter TEXT NOT NULL, site TEXT NOT NULL, incarnation INTEGER NOT NULL, known TEXT NOT NULL,
    PRIMARY KEY (counter, site, incarnation)
) WITHOUT ROWID;
CREATE TABLE gone (
    site TEXT NOT NULL, incarnation INTEGER NOT NULL, counter TEXT NOT NULL, known TEXT NOT NULL,
    PRIMARY KEY (site, incarnation, counter)
) WITHOUT ROWID;
CREATE TABLE tokens (
    digest BLOB PRIMARY KEY, scope TEXT NOT NULL, site TEXT, label TEXT NOT NULL, created INTEGER NOT NULL
) WITHOUT ROWID;
"""


def test_file_of_schema_1_is_upgraded(tmp_path: Path) -> None:
    database = sqlite3.connect(tmp_path / "file")
    database.executescript(FIRST_SCHEMA)
    database.execute("INSERT INTO counters VALUES ('hits', 0.01, 0.05, 'auto', 'adaptive', 2000, 3, '70', '9')")
    database.execute("INSERT INTO sites VALUES ('hits', 'web', 1, '61')")
    database.execute("INSERT INTO gone VALUES ('old', 1, 'hits', '9')")
    database.commit()
    database.close()
    store = SqliteStore(tmp_path / "file")
    assert store.load() == {"hits": (Config(), PersistentState(3, 70, 9, ((SiteId("web", 1), 61),)))}
    store.save(Changes(prune_before=10**9))  # tombstones without an age count as set now
    assert store.tombstones(SiteId("old", 1)) == (("hits", 9),)
    store.close()


FOURTH_SCHEMA = """
PRAGMA user_version = 4;
CREATE TABLE budgets (
    name TEXT PRIMARY KEY, maximum TEXT NOT NULL, slack REAL NOT NULL, forgiven TEXT NOT NULL, gone TEXT NOT NULL,
    round INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE budget_sites (
    budget TEXT NOT NULL, site TEXT NOT NULL, incarnation INTEGER NOT NULL, maximum TEXT NOT NULL,
    given_up INTEGER NOT NULL, departed INTEGER NOT NULL, PRIMARY KEY (budget, site, incarnation)
) WITHOUT ROWID;
INSERT INTO budgets VALUES ('tokens', '4611686018427387904', 0.013, '7', '9', 3);
INSERT INTO budgets VALUES ('unused', '1', 0.0, '0', '0', 0);
INSERT INTO budget_sites VALUES ('tokens', 'web', 1, '61', 0, 0);
INSERT INTO budget_sites VALUES ('tokens', 'web', 2, '0', 0, 1);
INSERT INTO budget_sites VALUES ('tokens', 'app', 9000000000000000000, '5', 1, 0);
"""


def test_budgets_of_schema_4_are_upgraded(tmp_path: Path) -> None:
    SqliteStore(tmp_path / "file").close()
    database = sqlite3.connect(tmp_path / "file")
    families = ("families", "family_labels", "family_sites", "family_counts")
    for table in ("budgets", "budget_periods", "budget_sites", "windows", "owners", *families):
        database.execute(f"DROP TABLE {table}")
    for table, column in (("counters", "windows"), ("tokens", "expires"), ("tokens", "last_used")):
        database.execute(f"ALTER TABLE {table} DROP COLUMN {column}")
    database.executescript(FOURTH_SCHEMA)
    database.close()
    store = SqliteStore(tmp_path / "file")
    sites = {SiteId("web", 1): SavedSite(61), SiteId("app", 9 * 10**18): SavedSite(5, given_up=True)}
    assert store.load_budgets() == {
        "tokens": SavedBudget(
            BudgetFields(BudgetRule(2**62, slack=0.013)), {0: SavedPeriod(PeriodFields(7, 9, 0, 3, False), sites)}
        ),
        "unused": SavedBudget(
            BudgetFields(BudgetRule(1, slack=0.0)), {0: SavedPeriod(PeriodFields(0, 0, 0, 0, False), {})}
        ),
    }
    store.close()


def test_families_of_schema_8_are_upgraded(tmp_path: Path) -> None:
    """`lost` was a number of events that may be missing; it is one of sites."""
    store = SqliteStore(tmp_path / "file")
    fields = FamilyFields(FamilyRule(LABELS, 0.01), 3, Steps(38, 101), 2, 1000, 37)
    store.save(Changes(families={"pages": FamilyChanges(fields, {"{}": 1000})}))
    store.close()
    database = sqlite3.connect(tmp_path / "file")
    database.execute("DROP TABLE owners")
    database.execute("ALTER TABLE family_labels DROP COLUMN owner")
    database.execute("ALTER TABLE families DROP COLUMN lost_until")
    database.execute("""UPDATE families SET rule = '{"kind":"labels","epsilon":0.01,"accuracy":0.0}'""")
    database.execute("PRAGMA user_version = 8")
    database.commit()
    database.close()
    store = SqliteStore(tmp_path / "file")
    assert store.load_families() == {"pages": SavedFamily(fields._replace(lost=0), {"{}": 1000}, {}, {})}
    store.close()


def test_what_schema_9_has_saved_belongs_to_no_token(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "file")
    fields = FamilyFields(FamilyRule(LABELS, 0.01), 3, Steps(38, 101), 2, 1000, 0)
    store.save(Changes(families={"pages": FamilyChanges(fields, {"{}": 1000}, owners={"{}": "token 1"})}))
    store.close()
    database = sqlite3.connect(tmp_path / "file")
    database.execute("DROP TABLE owners")
    database.execute("ALTER TABLE family_labels DROP COLUMN owner")
    database.execute("PRAGMA user_version = 9")
    database.commit()
    database.close()
    store = SqliteStore(tmp_path / "file")
    assert (store.load_families()["pages"].owners, store.load_owners()) == ({}, {})
    store.save(Changes(owners={Owned("counter", "hits"): "token 1"}))
    assert store.load_owners() == {Owned("counter", "hits"): "token 1"}
    store.close()


def test_rule_that_this_machine_cannot_use_is_refused_by_name(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "file")
    store.save(Changes(budgets={"tokens": BudgetFields(BudgetRule(1, "day", "Europe/Berlin"))}))
    store.close()
    database = sqlite3.connect(tmp_path / "file")
    database.execute("UPDATE budgets SET rule = replace(rule, 'Europe/Berlin', 'Europe/Nowhere')")
    database.commit()
    database.close()
    store = SqliteStore(tmp_path / "file")
    with pytest.raises(StoreError, match="the rule of budget 'tokens' cannot be used here: tz = 'Europe/Nowhere'"):
        store.load_budgets()
    store.close()


@pytest.fixture
def killed(tmp_path: Path) -> SqliteStore:
    """The state of a coordinator of schema 2 that was killed: its last changes are in the journal and in the WAL."""
    shutil.copytree(FIXTURE, tmp_path, dirs_exist_ok=True)
    return SqliteStore(tmp_path / STATE_FILE)


def test_state_of_a_killed_coordinator_of_schema_2_is_loaded_completely(killed: SqliteStore) -> None:
    expected = json.loads((FIXTURE / "expected.json").read_text())
    assert killed.debug_state()["journal_entries"] > 1
    found = {
        name: {
            "config": [config.alpha, config.delta, config.scheme, config.adversary, config.label_cap],
            "round": state.round,
            "published": state.published,
            "departed": state.departed,
            "sites": sorted([*site_id, count] for site_id, count in state.known),
        }
        for name, (config, state) in killed.load().items()
    }
    assert found == expected["counters"]
    retired = {SiteId(site, incarnation) for site, incarnation, *_ in expected["tombstones"]}
    tombstones = [[*site_id, name, count] for site_id in sorted(retired) for name, count in killed.tombstones(site_id)]
    assert tombstones == expected["tombstones"]
    assert killed.tombstone_horizon() == expected["tombstone_horizon"]
    tokens = [[token.digest.hex(), token.scope, token.site, token.label, token.created] for token in killed.tokens()]
    assert tokens == expected["tokens"]
    killed.close()


async def test_coordinator_goes_on_from_the_state_of_schema_2(killed: SqliteStore) -> None:
    expected = json.loads((FIXTURE / "expected.json").read_text())["counters"]
    async with site_server(killed, label_cap=2) as harness:
        await harness.server.flush()
        for name, state in expected.items():
            counter = harness.server.counter(name)
            assert counter.published_answer.estimate >= state["published"]
            assert counter.coordinator.known_total == state["departed"] + sum(count for *_, count in state["sites"])
        assert {str(session.site_id.site) for session in harness.server.sessions} == {
            "web-0",
            "web-1",
            "web-2",
            "app-0",
        }
    killed.close()


async def test_state_of_schema_5_is_loaded_completely_and_goes_on(tmp_path: Path) -> None:
    shutil.copytree(FIXTURES / "schema5_killed", tmp_path, dirs_exist_ok=True)
    expected = json.loads((FIXTURES / "schema5_killed" / "expected.json").read_text())
    store = SqliteStore(tmp_path / STATE_FILE)
    assert store.debug_state()["journal_entries"] > 0
    for name, (config, state) in store.load().items():
        fields = [config.alpha, config.delta, config.scheme, config.adversary, config.label_cap]
        sites = sorted([*site_id, count] for site_id, count in state.known)
        assert [fields, *state[:3], sites] == expected["counters"].pop(name)
        assert config.windows is None
    assert not expected["counters"]
    assert list(store.load_windows()) == []
    assert list(store.load_budgets()) == ["tokens"]
    async with site_server(store, label_cap=1) as harness:
        refused = FakeConnection()
        assert await harness.server.on_hello(refused, Hello(VERSION, "app", 9)) is None
        (retired,) = [item for item in refused.received if isinstance(item, IncarnationRetired)]
        assert "odd@hour" in dict(retired.known_counts)  # its tombstone is no watermark: it has a count
        app, connection = await harness.connect("app", 10)
        await harness.send(app, connection, Join("new@hour:490000", 0, 4))
        with pytest.raises(InvalidParameter, match="a name that no windows of another counter have"):
            harness.server.create("odd", Config(windows=WindowRule("hour")))
    store.close()
    store = SqliteStore(tmp_path / STATE_FILE)
    assert store.load()["new"][0].windows == WindowRule("hour")
    assert list(store.load_windows()) == [(("new", 490_000), (0, None, 0, 0))]
    store.close()


def test_windows_that_this_machine_cannot_use_are_refused_by_name(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "file")
    config = Config(windows=WindowRule("day", "Europe/Berlin"))
    store.save(Changes({"hits": CounterFields(0, 0, 0)}, configs={"hits": config}))
    store.close()
    database = sqlite3.connect(tmp_path / "file")
    database.execute("UPDATE counters SET windows = replace(windows, 'Europe/Berlin', 'Europe/Nowhere')")
    database.commit()
    database.close()
    store = SqliteStore(tmp_path / "file")
    with pytest.raises(StoreError, match="the windows of counter 'hits' cannot be used here: tz = 'Europe/Nowhere'"):
        store.load()
    store.close()


def test_newer_schema_is_refused_with_both_versions(tmp_path: Path) -> None:
    SqliteStore(tmp_path / "file").close()
    database = sqlite3.connect(tmp_path / "file")
    database.execute(f"PRAGMA user_version = {SCHEMA + 1}")
    database.close()
    with pytest.raises(StoreError, match=f"newer Countless .schema {SCHEMA + 1}; this one knows up to {SCHEMA}"):
        SqliteStore(tmp_path / "file")


def test_file_of_another_program_is_refused(tmp_path: Path) -> None:
    database = sqlite3.connect(tmp_path / "file")
    database.execute("PRAGMA user_version = 1")
    database.close()
    with pytest.raises(StoreError, match="another program"):
        SqliteStore(tmp_path / "file")


def test_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("this is no database, whatever its name says. " * 100)
    with pytest.raises(StoreError, match="not a database of Countless"):
        SqliteStore(tmp_path / "text")
