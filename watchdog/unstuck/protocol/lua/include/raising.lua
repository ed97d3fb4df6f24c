-- Raise counters, all or none: names[i] by amounts[i]. nil, or the error to answer; to be called before any other write.
local function raise(names, amounts)
  local stats, sums = stem .. 'stats', {}
  for i = 1, #names do
    if amounts[i] ~= 0 then
      local sum = redis.pcall('HINCRBY', stats, names[i], whole(amounts[i]))
      if type(sum) == 'table' then
        for k = 1, i - 1 do -- as it was: a field that was not there is not there
          if sums[k] == amounts[k] then call('HDEL', stats, names[k])
          elseif sums[k] then call('HINCRBY', stats, names[k], whole(-amounts[k])) end
        end
        if find(sum.err, 'WRONGTYPE', 1, true) then return sum end
        return redis.error_reply('UNSTUCKNUMBER ' .. stats .. ' ' .. names[i])
      end
      sums[i] = sum
    end
  end
  return nil
end
