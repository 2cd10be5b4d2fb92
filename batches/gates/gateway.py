"""The gate of a gateway: its rate and its calls at once, for lanes and for single requests."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

import redis
import redis.asyncio
from django.utils.translation import gettext as _
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.exceptions import NoScriptError, RedisError
from redis.retry import Retry

from .errors import GateUnavailableError
from .script import (
    ANSWER_TIMEOUT,
    CONNECT_TIMEOUT,
    GIVE_BACK,
    TAKE,
    GateKeys,
    Grant,
    TakeCall,
    give_back_args,
    take_call,
)

#: connections of a lane; a gate's answer takes well under a millisecond
CONNECTIONS = 4
#: tokens remembered through an outage; what is beyond runs out by itself
OWED_MOST = 10_000


def _unavailable() -> GateUnavailableError:
    return GateUnavailableError(_("Redis 没有应答，无法确认速率上限，恢复之前不会发送。"))


class GatewayGate:
    """For a lane's loop. Connects by itself, again after an outage; keeps nothing that matters."""

    def __init__(self, redis_url: str) -> None:
        # No retries: a permit that was granted but not heard of would be granted again.
        pool = redis.asyncio.BlockingConnectionPool.from_url(
            redis_url,
            max_connections=CONNECTIONS,
            timeout=ANSWER_TIMEOUT,
            socket_connect_timeout=CONNECT_TIMEOUT,
            socket_timeout=ANSWER_TIMEOUT,
            retry=AsyncRetry(NoBackoff(), 0),
        )
        self._redis = redis.asyncio.Redis.from_pool(pool)
        #: tokens whose release Redis did not take, by gateway
        self._owed: dict[int, list[str]] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def take(
        self,
        gateway_id: int,
        wanted: int | Sequence[int],
        *,
        rate_per_min: int | None,
        max_concurrent: int | None,
        token_ttl_ms: int,
        largest: int = 1,
    ) -> Grant:
        """Permits for as many as possible of the wanted calls, in their order.

        `wanted` is a number of calls of one target, or the targets of each call; a call of more
        targets than the rate allows in a minute never gets one. Limits as they are now; None = no
        limit. `token_ttl_ms` is longer than any call may take: after it, a call's place is given
        to others. `largest` is the most targets that any call to this gateway may have.

        Raises GateUnavailableError within two seconds where Redis does not answer. A gateway
        without limits is not asked about.
        """
        if rate_per_min is None and max_concurrent is None:
            return Grant(wanted if isinstance(wanted, int) else len(wanted))
        call = take_call(
            GateKeys.of_gateway(gateway_id),
            wanted,
            rate_per_min=rate_per_min,
            max_concurrent=max_concurrent,
            token_ttl_ms=token_ttl_ms,
            largest=largest,
        )
        try:
            await self._pay(gateway_id)
            try:
                answer = await self._evalsha(TAKE.sha, call, fresh=False)
            except NoScriptError:
                answer = await self._evalsha(TAKE.text, call, fresh=True)
        except (RedisError, OSError) as error:
            raise _unavailable() from error
        return call.grant(answer)

    async def release(self, gateway_id: int, tokens: Sequence[str]) -> None:
        """The calls of these tokens have ended. Never raises: what Redis does not take now is
        handed in with the next take, or runs out by itself.
        """
        if not tokens:
            return
        owed = self._owed.setdefault(gateway_id, [])
        owed.extend(tokens[: max(0, OWED_MOST - len(owed))])
        with suppress(RedisError, OSError):
            await self._pay(gateway_id)

    async def give_back(self, gateway_id: int, unused: Grant) -> None:
        """Permits of a grant that are not used after all (`Grant.keep`); once per grant.

        Never raises: what Redis does not take is forfeit.
        """
        if not unused.granted or not (unused.trail or unused.tokens):
            return
        keys = GateKeys.of_gateway(gateway_id)
        args = (2, keys.last, keys.calls, *give_back_args(unused))
        try:
            try:
                await self._any.evalsha(GIVE_BACK.sha, *args)
            except NoScriptError:
                await self._any.eval(GIVE_BACK.text, *args)
        except (RedisError, OSError):
            await self.release(gateway_id, unused.tokens)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._redis.aclose()

    @property
    def _any(self) -> Any:
        return self._redis  # the client's annotations leave open whether it is asynchronous

    async def _evalsha(self, script: str, call: TakeCall, *, fresh: bool) -> Any:
        run = self._any.eval if fresh else self._any.evalsha
        return await run(script, len(call.keys), *call.keys, *call.args(fresh=fresh))

    async def _pay(self, gateway_id: int) -> None:
        """Hand in what is owed; on failure it stays owed."""
        owed = self._owed.pop(gateway_id, None)
        if not owed:
            return
        try:
            await self._any.zrem(GateKeys.of_gateway(gateway_id).calls, *owed)
        except BaseException:
            self._owed.setdefault(gateway_id, []).extend(owed)
            raise


class SyncGate:
    """Any gate, for one request at a time; one connection, closed at the end."""

    def __init__(self, redis_url: str) -> None:
        self._redis = redis.Redis.from_url(
            redis_url,
            socket_connect_timeout=CONNECT_TIMEOUT,
            socket_timeout=ANSWER_TIMEOUT,
            retry=Retry(NoBackoff(), 0),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._redis.close()

    def take(
        self,
        keys: GateKeys,
        n: int,
        *,
        rate_per_min: int | None,
        max_concurrent: int | None = None,
        token_ttl_ms: int = 0,
        largest: int = 1,
    ) -> Grant:
        """As `GatewayGate.take`, for the gate of these keys and calls of one target."""
        if rate_per_min is None and max_concurrent is None:
            return Grant(n)
        call = take_call(
            keys,
            n,
            rate_per_min=rate_per_min,
            max_concurrent=max_concurrent,
            token_ttl_ms=token_ttl_ms,
            largest=largest,
        )
        names = (len(call.keys), *call.keys)
        try:
            try:
                answer = self._any.evalsha(TAKE.sha, *names, *call.args(fresh=False))
            except NoScriptError:
                answer = self._any.eval(TAKE.text, *names, *call.args(fresh=True))
        except (RedisError, OSError) as error:
            raise _unavailable() from error
        return call.grant(answer)

    def give_back(self, keys: GateKeys, unused: Grant) -> None:
        """As `GatewayGate.give_back`."""
        if not unused.granted or not (unused.trail or unused.tokens):
            return
        # otherwise forfeit; a place among the calls at once runs out by itself
        with suppress(RedisError, OSError):
            self._any.eval(GIVE_BACK.text, 2, keys.last, keys.calls, *give_back_args(unused))

    def release(self, keys: GateKeys, tokens: Sequence[str]) -> None:
        """The calls of these tokens have ended. Never raises: they run out by themselves too."""
        if not tokens:
            return
        with suppress(RedisError, OSError):
            self._any.zrem(keys.calls, *tokens)

    @property
    def _any(self) -> Any:
        return self._redis
