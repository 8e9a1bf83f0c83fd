// What help() says of base Lua's functions, with what differs from PUC Lua's.

#include "lua/core/binding.h"
#include "lua/core/notes.h"
#include "lua/sandbox/sandbox.h"

namespace strata::lua {
namespace {

struct BaseHelp {
  const char* library;  ///< "" = a global
  const char* name;     ///< "" = the library itself
  const char* text;
};

constexpr BaseHelp kHelp[] = {
    {"", "assert", "assert(v [, message]): v, or an error where it is nil or false"},
    {"", "collectgarbage", "collectgarbage(\"collect\" | \"count\" | \"step\"): the collector"},
    {"", "error", "error(message [, level]): ends the call with an error; pcall catches it"},
    {"", "getmetatable", "getmetatable(v): the metatable of a table, the type's name of an object"},
    {"", "ipairs", "ipairs(list): for i, v in ipairs(list) do ... end, from 1 until a nil"},
    {"", "load", "load(text [, name]): the function of a text, or nil and the error; no bytecode"},
    {"", "loadstring", "loadstring(text [, name]): load"},
    {"", "next", "next(table [, key]): the key behind this one, and its value"},
    {"", "pairs", "pairs(table): for k, v in pairs(table) do ... end, in no order"},
    {"", "pcall", "pcall(f, ...): true and what f gives, or false and the error"},
    {"", "print", "print(...): shows values, tables as Lua writes them, tensors as PyTorch does"},
    {"", "rawequal", "rawequal(a, b): a == b without metatables"},
    {"", "rawget", "rawget(table, key): table[key] without metatables"},
    {"", "rawset", "rawset(table, key, value): table[key] = value without metatables"},
    {"", "require", "require(name): what the file beside the script gives, run once"},
    {"", "select", "select(n, ...): the arguments from n on; select(\"#\", ...) counts them"},
    {"", "setmetatable", "setmetatable(table, metatable): the table, with it"},
    {"", "tonumber", "tonumber(v [, base]): the number that v spells, or nil"},
    {"", "tostring", "tostring(v): the text that print shows"},
    {"", "type",
     "type(v): \"nil\", \"boolean\", \"number\", \"string\", \"table\", \"function\", "
     "\"thread\" or \"userdata\" (an object)"},
    {"", "unpack", "unpack(list [, i [, j]]): its elements as values"},
    {"", "xpcall", "xpcall(f, handler, ...): pcall with a function of the error"},

    {"string", "", "string: texts; s:upper() is string.upper(s)"},
    {"string", "byte", "string.byte(s [, i [, j]]): the bytes from i to j as numbers"},
    {"string", "char", "string.char(...): the text of bytes"},
    {"string", "find",
     "string.find(s, pattern [, from [, plain]]): where it begins and ends, "
     "and what it caught; nil where it is not"},
    {"string", "format", "string.format(format, ...): as C's printf; %s shows any value"},
    {"string", "gmatch", "string.gmatch(s, pattern): an iterator over what the pattern catches"},
    {"string", "gsub",
     "string.gsub(s, pattern, by [, n]): s with matches replaced (by a text with "
     "%1, a table or a function), and how many"},
    {"string", "len", "string.len(s): bytes; #s"},
    {"string", "lower", "string.lower(s): in lower case"},
    {"string", "match", "string.match(s, pattern [, from]): what the first match catches, or nil"},
    {"string", "rep", "string.rep(s, n [, separator]): n times s"},
    {"string", "reverse", "string.reverse(s): backwards"},
    {"string", "sub", "string.sub(s, i [, j]): the bytes from i to j; negative from the end"},
    {"string", "upper", "string.upper(s): in upper case"},

    {"table", "", "table: lists, which count from 1"},
    {"table", "concat", "table.concat(list [, separator [, i [, j]]]): the elements as one text"},
    {"table", "foreach", "table.foreach(table, f): f(key, value) until it gives something"},
    {"table", "foreachi", "table.foreachi(list, f): f(i, value) until it gives something"},
    {"table", "getn", "table.getn(list): #list"},
    {"table", "insert", "table.insert(list [, position], value): puts it in, at the end"},
    {"table", "maxn", "table.maxn(table): its largest number of a key"},
    {"table", "move", "table.move(a, from, to, at [, b]): copies elements"},
    {"table", "remove", "table.remove(list [, position]): takes the element out, the last one"},
    {"table", "sort", "table.sort(list [, less]): in place; less(a, b) tells the order"},

    {"math", "", "math: numbers, which are doubles"},
    {"math", "abs", "math.abs(x): without its sign"},
    {"math", "acos", "math.acos(x): arc cosine"},
    {"math", "asin", "math.asin(x): arc sine"},
    {"math", "atan", "math.atan(x): arc tangent"},
    {"math", "atan2", "math.atan2(y, x): the angle of (x, y)"},
    {"math", "ceil", "math.ceil(x): the least whole number not below x"},
    {"math", "cos", "math.cos(x): cosine"},
    {"math", "cosh", "math.cosh(x): hyperbolic cosine"},
    {"math", "deg", "math.deg(x): radians as degrees"},
    {"math", "exp", "math.exp(x): e^x"},
    {"math", "floor", "math.floor(x): the largest whole number not above x"},
    {"math", "fmod", "math.fmod(x, y): the remainder with the sign of x"},
    {"math", "frexp", "math.frexp(x): m and e with x = m 2^e"},
    {"math", "ldexp", "math.ldexp(m, e): m 2^e"},
    {"math", "log", "math.log(x [, base]): logarithm, natural"},
    {"math", "log10", "math.log10(x): logarithm to base 10"},
    {"math", "max", "math.max(x, ...): the largest"},
    {"math", "min", "math.min(x, ...): the least"},
    {"math", "mod", "math.mod(x, y): math.fmod"},
    {"math", "modf", "math.modf(x): its whole part and its fraction"},
    {"math", "pow", "math.pow(x, y): x^y"},
    {"math", "rad", "math.rad(x): degrees as radians"},
    {"math", "random",
     "math.random([[low,] high]): in [0, 1), or whole from low (1) to high; every "
     "rank draws the same"},
    {"math", "randomseed", "math.randomseed(seed): begins math.random anew"},
    {"math", "sin", "math.sin(x): sine"},
    {"math", "sinh", "math.sinh(x): hyperbolic sine"},
    {"math", "sqrt", "math.sqrt(x): square root"},
    {"math", "tan", "math.tan(x): tangent"},
    {"math", "tanh", "math.tanh(x): hyperbolic tangent"},

    {"bit", "", "bit: operations on 32-bit integers"},
    {"bit", "arshift", "bit.arshift(x, n): shift right, keeping the sign"},
    {"bit", "band", "bit.band(x, ...): and"},
    {"bit", "bnot", "bit.bnot(x): not"},
    {"bit", "bor", "bit.bor(x, ...): or"},
    {"bit", "bswap", "bit.bswap(x): its bytes in the other order"},
    {"bit", "bxor", "bit.bxor(x, ...): exclusive or"},
    {"bit", "lshift", "bit.lshift(x, n): shift left"},
    {"bit", "rol", "bit.rol(x, n): rotation left"},
    {"bit", "ror", "bit.ror(x, n): rotation right"},
    {"bit", "rshift", "bit.rshift(x, n): shift right, with zeros"},
    {"bit", "tobit", "bit.tobit(x): as a signed 32-bit integer"},
    {"bit", "tohex", "bit.tohex(x [, digits]): as hexadecimal text"},

    {"coroutine", "", "coroutine: functions that can wait"},
    {"coroutine", "create", "coroutine.create(f): a coroutine, to be resumed"},
    {"coroutine", "isyieldable", "coroutine.isyieldable(): whether the running one may yield"},
    {"coroutine", "resume", "coroutine.resume(co, ...): true and what it yields, or false and why"},
    {"coroutine", "running", "coroutine.running(): the one that runs"},
    {"coroutine", "status",
     "coroutine.status(co): \"running\", \"suspended\", \"normal\", \"dead\""},
    {"coroutine", "wrap", "coroutine.wrap(f): a function that resumes it"},
    {"coroutine", "yield", "coroutine.yield(...): waits; gives what the next resume brings"},
};

}  // namespace

void NoteBaseHelp(lua_State* L) {
  for (const BaseHelp& help : kHelp) {
    lua_pushvalue(L, LUA_GLOBALSINDEX);
    for (const char* step : {help.library, help.name}) {
      if (*step == '\0') continue;
      lua_getfield(L, -1, step);
      lua_remove(L, -2);
    }
    // LuaJIT leaves some of 5.1's old names out, depending on how it was built.
    if (!lua_isnil(L, -1)) NoteHelp(L, -1, help.text);
    lua_pop(L, 1);
  }
}

}  // namespace strata::lua
