#!lua flags=allow-oom
-- Raise the cache stamp by hand: everything that was computed before counts as stale, and listeners are told.
-- KEYS 1 unstuck:{Q}:meta
-- ARGV 1 op
-- returns the new stamp
--@include common
--@include ending
local refused = version_error()
if refused then return refused end
local op = ARGV[1]
local earlier = recalled('cache', 'bump', op)
if earlier then return earlier end
local _, micros = clock()
local stamp, bad = next_stamp(micros)
if bad then return bad end
local counters, err = read_counters({'bumped', 'unheard'})
if err then return err end
invalidate('', 'bumped', stamp)
redis.call('HSET', stem .. 'stats', 'bumped', whole(counters[1] + 1), 'unheard', whole(counters[2] + unheard))
return remember('cache', 'bump', op, whole(stamp))
