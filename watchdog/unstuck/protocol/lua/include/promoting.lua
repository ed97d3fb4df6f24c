-- Move due jobs from scheduled to pending, at most `most`; a bad id goes to quarantine. Returns how many were moved.
local function promote(now, most)
  local due = call('ZRANGEBYSCORE', stem .. 'scheduled', '-inf', now, 'LIMIT', 0, most)
  local moved = 0
  for i = 1, #due do
    local id = due[i]
    local job = stem .. 'job:' .. id
    local body = redis.pcall('HMGET', job, 'state', 'payload')
    if body.err or not valid(id) or not body[1] or body[1] == 'scheduled' and not body[2] then
      to_quarantine(id, job, body.err and 'wrong type' or 'no body')
    elseif body[1] == 'scheduled' then
      to_pending(id, job, now, 'LPUSH')
      moved = moved + 1
    else
      note('duplicate_dropped', id, '', '', 'was ' .. body[1] .. ', found in scheduled')
    end
    call('ZREM', stem .. 'scheduled', id)
  end
  return moved
end
