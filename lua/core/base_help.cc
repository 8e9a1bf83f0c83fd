// The texts of help() for the functions of base Lua, with the differences from PUC Lua.

#include <string_view>

#include "engine/base/text.h"
#include "lua/core/binding.h"
#include "lua/core/notes.h"
#include "lua/core/sandbox.h"

namespace strata::lua {
namespace {

/// Each line begins with the name of a global, of a library, or of a function in one.
constexpr std::string_view kHelp =
    R"help(assert(v [, message]): v, or an error where it is nil or false
collectgarbage("collect" | "count" | "step"): the collector
error(message [, level]): ends the call with an error; pcall catches it
getmetatable(v): the metatable of a table, the type's name of an object
ipairs(list): for i, v in ipairs(list) do ... end, from 1 until a nil
load(text [, name]): the function of a text, or nil and the error; no bytecode
loadstring(text [, name]): load
next(table [, key]): the key behind this one, and its value
pairs(table): for k, v in pairs(table) do ... end, in no order
pcall(f, ...): true and what f gives, or false and the error
print(...): shows values, tables as Lua writes them, tensors as PyTorch does
rawequal(a, b): a == b without metatables
rawget(table, key): table[key] without metatables
rawset(table, key, value): table[key] = value without metatables
require(name): what the file beside the script gives, run once
select(n, ...): the arguments from n on; select("#", ...) counts them
setmetatable(table, metatable): the table, with it
tonumber(v [, base]): the number that v spells, or nil
tostring(v): the text that print shows
type(v): "nil", "boolean", "number", "string", "table", "function", "thread" or "userdata" (an object)
unpack(list [, i [, j]]): its elements as values
xpcall(f, handler, ...): pcall with a function of the error

string: texts; s:upper() is string.upper(s)
string.byte(s [, i [, j]]): the bytes from i to j as numbers
string.char(...): the text of bytes
string.find(s, pattern [, from [, plain]]): where it begins and ends, and what it caught; nil where it is not
string.format(format, ...): as C's printf; %s shows any value
string.gmatch(s, pattern): an iterator over what the pattern catches
string.gsub(s, pattern, by [, n]): s with matches replaced (by a text with %1, a table or a function), and how many
string.len(s): bytes; #s
string.lower(s): in lower case
string.match(s, pattern [, from]): what the first match catches, or nil
string.rep(s, n [, separator]): n times s
string.reverse(s): backwards
string.sub(s, i [, j]): the bytes from i to j; negative from the end
string.upper(s): in upper case

table: lists, which count from 1
table.concat(list [, separator [, i [, j]]]): the elements as one text
table.foreach(table, f): f(key, value) until it gives something
table.foreachi(list, f): f(i, value) until it gives something
table.getn(list): #list
table.insert(list [, position], value): puts it in, at the end
table.maxn(table): its largest number of a key
table.move(a, from, to, at [, b]): copies elements
table.remove(list [, position]): takes the element out, the last one
table.sort(list [, less]): in place; less(a, b) tells the order

math: numbers, which are doubles
math.abs(x): without its sign
math.acos(x): arc cosine
math.asin(x): arc sine
math.atan(x): arc tangent
math.atan2(y, x): the angle of (x, y)
math.ceil(x): the least whole number not below x
math.cos(x): cosine
math.cosh(x): hyperbolic cosine
math.deg(x): radians as degrees
math.exp(x): e^x
math.floor(x): the largest whole number not above x
math.fmod(x, y): the remainder with the sign of x
math.frexp(x): m and e with x = m 2^e
math.ldexp(m, e): m 2^e
math.log(x [, base]): logarithm, natural
math.log10(x): logarithm to base 10
math.max(x, ...): the largest
math.min(x, ...): the least
math.mod(x, y): math.fmod
math.modf(x): its whole part and its fraction
math.pow(x, y): x^y
math.rad(x): degrees as radians
math.random([[low,] high]): in [0, 1), or whole from low (1) to high; every rank draws the same
math.randomseed(seed): begins math.random anew
math.sin(x): sine
math.sinh(x): hyperbolic sine
math.sqrt(x): square root
math.tan(x): tangent
math.tanh(x): hyperbolic tangent

bit: operations on 32-bit integers
bit.arshift(x, n): shift right, keeping the sign
bit.band(x, ...): and
bit.bnot(x): not
bit.bor(x, ...): or
bit.bswap(x): its bytes in the other order
bit.bxor(x, ...): exclusive or
bit.lshift(x, n): shift left
bit.rol(x, n): rotation left
bit.ror(x, n): rotation right
bit.rshift(x, n): shift right, with zeros
bit.tobit(x): as a signed 32-bit integer
bit.tohex(x [, digits]): as hexadecimal text

coroutine: functions that can wait
coroutine.create(f): a coroutine, to be resumed
coroutine.isyieldable(): whether the running one may yield
coroutine.resume(co, ...): true and what it yields, or false and why
coroutine.running(): the one that runs
coroutine.status(co): "running", "suspended", "normal", "dead"
coroutine.wrap(f): a function that resumes it
coroutine.yield(...): waits; gives what the next resume brings)help";

}  // namespace

void NoteBaseHelp(lua_State* L) {
  for (const std::string& line : Split(kHelp, '\n')) {
    if (line.empty()) continue;
    lua_pushvalue(L, LUA_GLOBALSINDEX);
    for (const std::string& step : Split(line.substr(0, line.find_first_of("(:")), '.')) {
      lua_getfield(L, -1, step.c_str());
      lua_remove(L, -2);
    }
    // Depending on its build, LuaJIT lacks some of Lua 5.1's functions; their help is skipped.
    if (!lua_isnil(L, -1)) NoteHelp(L, -1, line);
    lua_pop(L, 1);
  }
}

}  // namespace strata::lua
