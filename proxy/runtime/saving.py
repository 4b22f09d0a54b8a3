"""Saved work, assembled: each route's cache and single flight. What is kept, and what runs, outlives every policy."""

from __future__ import annotations

from dataclasses import dataclass

from proxy.decisions.answers import Answers
from proxy.decisions.cacheability import CacheSettings, keep_seconds
from proxy.decisions.cached import Cached
from proxy.decisions.likeness import Likeness, LikenessScope
from proxy.exchange import Exchange
from proxy.outcome import Outcome
from proxy.policy.identities import Identity, of_server
from proxy.policy.problem import PolicyError, Problem
from proxy.policy.snapshot import ProviderSnapshot, ProviderTier, RedisSnapshot, RouteSnapshot, SpreadTier, StaleTier
from proxy.ports import CacheStore
from proxy.runtime.credentials import credential_headers, passes_credentials
from proxy.runtime.idempotency import ANSWERS
from proxy.runtime.route_names import RouteNames
from proxy.runtime.targets import Provider
from proxy.runtime.workshop import Workshop
from proxy.stages.observation import ObservationStage
from proxy.stages.refreshing import Refreshes
from proxy.stages.response_cache import CacheCounts, CacheParts, ResponseCacheStage
from proxy.stages.single_flight import Flights, SingleFlightStage
from proxy.stages.stale_cache import StaleAnswer

FLIGHTS = ("flights",)
REFRESHES = ("refreshes",)


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteSaving:
    """One route's stages; None for what it does not have. `stale` makes its `stale_cache` tiers."""

    cache: ResponseCacheStage | None = None
    single_flight: SingleFlightStage | None = None
    store: CacheStore | None = None
    counts: CacheCounts | None = None


class SavingParts:
    """What one policy's routes have in common: `of` makes a route's stages, `stale` a tier of its."""

    def __init__(self, shop: Workshop, names: RouteNames) -> None:
        self._shop = shop
        self._names = names
        kept, clock, bits = shop.kept, shop.clock, shop.bits
        self._ledger = kept.get(ANSWERS, Answers)
        self._flights = kept.get(FLIGHTS, Flights)
        self._refreshes = kept.get(REFRESHES, lambda: Refreshes(clock, bits))
        self._credentials = credential_headers(shop)
        self._refresh = ObservationStage(shop.observer, rescue=_unanswered, clock=clock)

    def of(self, route: RouteSnapshot, providers: dict[str, Provider]) -> RouteSaving:
        """Returns the stages of a route."""
        if route.cache is None and not route.single_flight:
            return RouteSaving()
        names = Likeness(self._scope(route, providers))
        store, counts, cache, keep = None, None, None, None
        if route.cache is not None:
            store, counts = self._store(route, route.cache), self._counts(route)
            parts = CacheParts(
                store=store,
                counts=counts,
                refreshes=self._refreshes,
                seconds=keep_seconds(route.cache, _max_age(route)),
                refresh=self._refresh,
            )
            cache = ResponseCacheStage(route.cache, names, parts=parts, clock=self._shop.clock)
            keep = cache.keep
        flights = SingleFlightStage(
            self._flights,
            names.name,
            ledger=self._ledger,
            clock=self._shop.clock,
            joins=route.single_flight,
            keep=keep,
        )
        return RouteSaving(cache=cache, single_flight=flights, store=store, counts=counts)

    def stale(self, number: int, tier: StaleTier, saving: RouteSaving) -> StaleAnswer:
        """Returns the tier that gives a kept answer."""
        assert saving.store is not None
        assert saving.counts is not None
        return StaleAnswer(
            saving.store, saving.counts, number=number, max_age=tier.max_age_seconds, clock=self._shop.clock
        )

    def _scope(self, route: RouteSnapshot, providers: dict[str, Provider]) -> LikenessScope:
        settings = route.cache
        scope = settings.scope if settings is not None else "tenant"
        goes_along = scope == "credential" or passes_credentials(route, providers)
        return LikenessScope(
            route=self._names.of(route),
            target=_target(route, providers),
            scope=scope,
            credentials=self._credentials if goes_along else (),
            headers=tuple(name for name, _ in route.match.header),
            ignore=frozenset(settings.ignore if settings is not None else ()),
            spaces=settings is not None and "space" in settings.normalize,
            case=settings is not None and "case" in settings.normalize,
        )

    def _counts(self, route: RouteSnapshot) -> CacheCounts:
        return self._shop.kept.get(("cache counts", route.name), CacheCounts, was=_was(route, "cache counts"))

    def _store(self, route: RouteSnapshot, settings: CacheSettings) -> CacheStore:
        if route.cache_redis is not None:
            return self._redis(route, route.cache_redis)
        shop, size = self._shop, settings.max_bytes
        was = _was(route, "cache", settings.scope)
        store = shop.kept.get(("cache", route.name, settings.scope), lambda: Cached(size), was=was)
        shop.later(lambda: store.reconfigure(size))
        return store

    def _redis(self, route: RouteSnapshot, server: RedisSnapshot) -> CacheStore:
        # Only who has such a server pays for what speaks to it.
        from proxy.store.cache import RedisCache
        from proxy.store.server import LibraryMissing

        shop = self._shop
        password = shop.secrets[server.password] if server.password is not None else None

        def connect() -> RedisCache:
            return RedisCache(server.url, username=server.username, password=password, clock=shop.clock)

        try:
            store = shop.kept.get(of_server(server), connect)
        except LibraryMissing as error:
            raise PolicyError([_problem(route, server, str(error))]) from error
        shop.later(lambda: store.reconfigure(password))
        return store


def _problem(route: RouteSnapshot, server: RedisSnapshot, message: str) -> Problem:
    file, line, column = server.place.rsplit(":", 2)
    path = f"routes.{route.name}.cache.store"
    return Problem(file=file, line=int(line), column=int(column), path=path, message=message)


def _was(route: RouteSnapshot, kind: str, *rest: str) -> list[Identity]:
    return [(kind, route.was, *rest)] if route.was is not None else []


def _max_age(route: RouteSnapshot) -> float | None:
    return max((tier.max_age_seconds for tier in route.tiers if isinstance(tier, StaleTier)), default=None)


def _target(route: RouteSnapshot, providers: dict[str, Provider]) -> bytes:
    """Returns all that makes the first tier's answers its own: whom it asks, and what it adds to a request."""
    match next(iter(route.tiers), None):
        case ProviderTier() as tier:
            members: tuple[ProviderTier, ...] = (tier,)
        case SpreadTier(members=several):
            members = several
        case _:
            members = ()
    told = [(tier.provider, tier.model, tier.set, *_service(providers[tier.provider].snapshot)) for tier in members]
    return repr(told).encode("utf-8", "surrogateescape")


def _service(provider: ProviderSnapshot) -> tuple[object, ...]:
    added = [(name, value.literal, value.env, value.file) for name, value in provider.headers]
    return str(provider.addresses[0]), provider.root_path, provider.dialect, provider.query, added


def _unanswered(exchange: Exchange, outcome: Outcome) -> None:
    """Nobody waits for what a refresh brings."""
