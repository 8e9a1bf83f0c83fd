-- Calls every function of torch.nn.functional and compares it with PyTorch's results in functional.json.
local strata = require "strata"
local F = strata.F
local golden = strata.json.decode(strata.read "functional.json")

-- Pseudo-random floats; make_functional.py has the same formula.
local function formula(shape, step)
  local count = 1
  for _, size in ipairs(shape) do count = count * size end
  return (((F.arange(count) * step) % 1009):double() / 1009 - 0.5):view(shape)
end

local function read(value, key, leaves)
  if type(value) ~= "table" then return value end
  if value.none then return nil end
  if value.data then return F.tensor(value.data, {dtype = value.dtype}) end
  if not value.floats then
    local list = {}
    for i, element in ipairs(value) do list[i] = read(element) end
    return list
  end
  local x = (formula(value.floats, value.step) * value.scale + value.shift):float()
  if value.grad then leaves[key] = x:requires_grad_() end
  return x
end

-- The first difference from the expected numbers; nil if there is none.
local function difference(got, wanted, what, tolerance)
  if #got ~= #wanted then return what .. ": expected " .. #wanted .. " numbers, got " .. #got end
  for i, number in ipairs(wanted) do
    local same = got[i] == number
    if type(number) == "number" then
      same = math.abs(got[i] - number) <= tolerance * math.max(1, math.abs(number))
    end
    if not same then return what .. ": expected " .. tostring(wanted) .. ", got " .. tostring(got) end
  end
end

local function flat(tensor)
  if tensor.dtype:find "Complex" then tensor = F.view_as_real(tensor) end
  return tensor:detach():reshape(-1):tolist()
end

local function compare(outputs, leaves, case)
  if #outputs ~= #case.gives then return #case.gives .. " results expected, got " .. #outputs end
  local total
  for i, wanted in ipairs(case.gives) do
    local output = outputs[i]
    local dtype = output.dtype:gsub("ComplexFloat", "complex64")
    if dtype ~= wanted.dtype then return "expected " .. wanted.dtype .. ", got " .. output.dtype end
    if tostring(output.shape) ~= tostring(wanted.shape) then
      return "expected the shape " .. tostring(wanted.shape) .. ", got " .. tostring(output.shape)
    end
    local tolerance = wanted.dtype:find "^int" and 0 or 1e-5
    local different = difference(flat(output), wanted.data, "result " .. i, tolerance)
    if different then return different end
    if output.requires_grad then
      local part = (output * formula(output.shape, 31):to(output.dtype:find "Complex" and output or output.dtype)):sum()
      total = total and total + part or part
    end
  end
  if total then (total.dtype:find "Complex" and total:abs() or total):backward() end
  for key, leaf in pairs(leaves) do
    local wanted = case.gradients[tostring(key)] or {}
    local different = difference(leaf.grad and flat(leaf.grad) or {}, wanted, "gradient of " .. key, 1e-5)
    if different then return different end
  end
end

-- Calls with the first `positions` of the arguments by position and all others by name.
-- Each argument is {key=, name=, value=}; gradients are stored under its key.
local function call(case, arguments, positions)
  local positional, named, leaves = {}, nil, {}
  for i, argument in ipairs(arguments) do
    local value = read(argument.value, argument.key, leaves)
    if i <= positions then
      positional[i] = value
    elseif value ~= nil then
      named = named or {}
      named[argument.name] = value
    end
  end
  if named then
    positions = positions + 1
    positional[positions] = named
  end
  local results = {pcall(F[case.name], unpack(positional, 1, positions))}
  if not results[1] then return results[2] end
  return compare({unpack(results, 2)}, leaves, case)
end

local function as_written(case)
  local arguments = {}
  for i, value in ipairs(case.args) do arguments[i] = {key = i, value = value} end
  for name, value in pairs(case.named or {}) do
    arguments[#arguments + 1] = {key = name, name = name, value = value}
  end
  return arguments
end

local function with_defaults(case, signature)
  local arguments = {}
  for i, name in ipairs(signature.names) do
    local value, key = case.args[i], i
    if value == nil and case.named and case.named[name] ~= nil then value, key = case.named[name], name end
    if value == nil then value = signature.defaults[name] end
    arguments[i] = {key = key, name = name, value = value}
  end
  return arguments
end

local wrong, tested = {}, {}
local function note(case, how, trouble)
  if not trouble then return end
  wrong[#wrong + 1] = case.name .. " " .. how .. tostring(case.named or case.args) .. ": " .. trouble
end

for _, case in ipairs(golden.cases) do
  tested[case.name] = true
  note(case, "as written ", call(case, as_written(case), #case.args))
  local signature = golden.signatures[case.name]
  if signature then
    note(case, "by position ", call(case, with_defaults(case, signature), signature.by_position))
    note(case, "by name ", call(case, with_defaults(case, signature), 0))
  end
end

-- These always draw random numbers; tensors_test.cc tests their properties.
for _, name in ipairs{"gumbel_softmax"} do tested[name] = true end
for _, name in ipairs(golden.names) do
  local found, message = pcall(function() return F[name] end)
  if found and not tested[name] then wrong[#wrong + 1] = name .. " is in no case" end
  if not found and not message:find("there is no F." .. name .. ": ", 1, true) then wrong[#wrong + 1] = message end
end
if #wrong > 0 then error(#wrong .. " of " .. #golden.cases .. "\n" .. table.concat(wrong, "\n"), 0) end
