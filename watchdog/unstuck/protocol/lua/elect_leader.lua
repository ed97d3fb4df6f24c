#!lua flags=allow-oom
-- Take or renew the lease of the leading agent. Only the own record is renewed; a lapsed lease is taken with a new epoch.
-- KEYS 1 unstuck:leader
-- ARGV 1 owner  2 lease_ms  3 configuration digest
-- returns {'leader' | 'follower', epoch, until_ms, owner, digest, now_ms, 'renewed' | 'taken' | ''}
local function integer(text)
  if not text then return 0 end
  if #text <= 15 and string.find(text, '^%-?%d+$') then return tonumber(text) end
  return nil
end
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local lease = integer(ARGV[2])
if not lease or lease < 1 then return redis.error_reply('UNSTUCKVALUE lease_ms ' .. ARGV[2]) end
local record = redis.call('HMGET', KEYS[1], 'owner', 'epoch', 'until_ms', 'digest', 'lease_ms')
local epoch, lapses = integer(record[2]), integer(record[3])
if not epoch or not lapses then return redis.error_reply('UNSTUCKNUMBER ' .. KEYS[1] .. ' epoch or until_ms') end
local mine = record[1] == ARGV[1]
if lapses > now and not mine then
  -- No lease ends later than it was granted for: Redis' clock was set back. Its holder, if alive, renews it soon enough.
  local granted = integer(record[5])
  if granted and granted > 0 and lapses > now + granted then
    lapses = now + granted
    redis.call('HSET', KEYS[1], 'until_ms', string.format('%.0f', lapses))
  end
  return {'follower', epoch, lapses, record[1] or '', record[4] or '', now, ''}
end
local how = 'renewed'
if not mine or lapses <= now then
  epoch = math.max(epoch + 1, now)
  how = 'taken'
end
redis.call('HSET', KEYS[1], 'owner', ARGV[1], 'epoch', string.format('%.0f', epoch), 'until_ms',
  string.format('%.0f', now + lease), 'digest', ARGV[3], 'lease_ms', string.format('%.0f', lease))
return {'leader', epoch, now + lease, ARGV[1], ARGV[3], now, how}
