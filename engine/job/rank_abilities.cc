#include "engine/job/rank_abilities.h"

#include <fnmatch.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <optional>
#include <string_view>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/fields/fields.h"
#include "engine/base/fields/quantity.h"
#include "engine/base/text.h"

namespace strata {
namespace {

constexpr const char* kExpected =
    "expected entries such as {\"slow*\", speed = 0.5, memory = \"24GiB\"} or "
    "\"slow* speed=0.5 memory=24GiB\"";
constexpr std::string_view kMeasured = "measured";

/// An entry before its rule; `speed` is "measured" or a number.
struct Entry {
  RankRule rule;
  bool measured = false;
};

void SetSpeed(const Value& value, Entry& entry) {
  if (value == Value(kMeasured)) {
    entry.measured = true;
    return;
  }
  const double speed = value.is_number() ? value.as_double() : 0;
  if (!(speed >= 1e-6 && speed <= 1e6)) {
    throw ConfigError(Str("ranks: speed: expected a number above 0, from 0.000001 to 1,000,000, ",
                          "or \"measured\", got ", value.Describe()));
  }
  entry.rule.speed = speed;
}

void SetMemory(const Value& value, RankRule& rule) {
  const double bytes = ParseBytes(value, "ranks: memory");
  if (!(bytes >= 1 && bytes < 0x1p62)) {
    throw ConfigError(Str("ranks: memory must be at least a byte, got ", value.Describe()));
  }
  rule.memory = static_cast<int64_t>(bytes);
}

/// Reads words such as "speed=0.5" into the entry.
void SetWords(const std::vector<std::string>& words, Entry& entry) {
  for (const std::string& word : words) {
    const size_t equals = word.find('=');
    const std::string name = word.substr(0, equals);
    const std::string text = equals == word.npos ? "" : word.substr(equals + 1);
    if (name == "speed" && !text.empty()) {
      static const Field number = Field::Number("speed", "");
      SetSpeed(text == kMeasured ? Value(text) : ParseText(&number, text), entry);
    } else if (name == "memory" && !text.empty()) {
      SetMemory(text, entry.rule);
    } else {
      const std::vector<std::string> names = {"speed", "memory"};
      throw ConfigError(Str("ranks: expected speed=NUMBER or memory=SIZE, got \"", word, "\"",
                            name == "speed" || name == "memory" ? "" : DidYouMean(name, names)));
    }
  }
}

std::vector<std::string> WordsOf(std::string_view text) {
  std::vector<std::string> words;
  for (std::string& word : Split(text, ' ')) {
    if (!word.empty()) words.push_back(std::move(word));
  }
  return words;
}

Entry EntryOf(const std::string& text) {
  std::vector<std::string> words = WordsOf(text);
  Entry entry;
  if (!words.empty() && words[0].find('=') == std::string::npos) {
    entry.rule.who = std::move(words[0]);
    words.erase(words.begin());
  }
  if (words.empty()) throw ConfigError(Str("ranks: ", kExpected, ", got \"", text, "\""));
  SetWords(words, entry);
  return entry;
}

Entry EntryOf(const Value& table) {
  static const FieldTable kFields = {
      Field::Any("who", "ranks, 3 or \"2-5\", or a pattern of host names").Optional(),
      Field::Any("speed", "relative to the other ranks, or \"measured\"").Optional(),
      Field::Any("memory", "most memory of the rank's tensors").Optional()};
  Call call = CallOf(table);
  call.subject = "ranks";
  call.noun = "key";
  const Value given = CanonicalizeGiven(kFields, call);
  Entry entry;
  if (given["who"].is_int()) {
    entry.rule.who = Str(given["who"].as_int());
  } else if (given["who"].is_string()) {
    entry.rule.who = given["who"].as_string();
  } else if (!given["who"].is_null()) {
    throw ConfigError(Str("ranks: expected ranks or a pattern of host names, got ",
                          given["who"].Describe(), "; ", kExpected));
  }
  if (!given["speed"].is_null()) SetSpeed(given["speed"], entry);
  if (!given["memory"].is_null()) SetMemory(given["memory"], entry.rule);
  if (entry.rule.speed == 0 && entry.rule.memory == 0 && !entry.measured) {
    throw ConfigError(Str("ranks: \"", entry.rule.who, "\" has neither speed nor memory"));
  }
  return entry;
}

/// The ranks that a text such as "3" or "2-5" names, first and last; none for other texts.
std::optional<std::pair<int, int>> RanksIn(const std::string& who) {
  const std::vector<std::string> ends = Split(who, '-');
  if (ends.size() > 2) return std::nullopt;
  const std::optional<int> first = ParseWhole(ends.front()), last = ParseWhole(ends.back());
  if (!first || !last) return std::nullopt;
  return std::pair(*first, *last);
}

void CheckWho(const std::string& who) {
  const auto is_usual = [](unsigned char c) {
    return std::isalnum(c) != 0 ||
           std::string_view("._-:*?").find(static_cast<char>(c)) != std::string_view::npos;
  };
  if (!who.empty() && std::ranges::all_of(who, is_usual)) return;
  throw ConfigError(Str("ranks: ", Value(who).ToJson(), " is no pattern of host names: expected ",
                        "letters, digits and . _ - : with * and ?, or ranks such as 3 or 2-5"));
}

/// What is said about a rank, and who said it.
struct Said {
  std::string speed_by, memory_by;
  RankRule rule = {.who = ""};
};

/// Takes over one value of a statement; refuses one that differs from an earlier statement.
template <class T>
void Take(T value, const std::string& by, const char* what, int rank, T& known,
          std::string& known_by) {
  if (value == 0) return;
  if (known != 0 && known != value) {
    throw ConfigError(Str("ranks: rank ", rank, " gets two values of ", what, ", from ", known_by,
                          " and from ", by, "; let only one entry match it"));
  }
  known = value;
  known_by = by;
}

void Take(const RankRule& rule, const std::string& by, int rank, Said& said) {
  Take(rule.speed, by, "speed", rank, said.rule.speed, said.speed_by);
  Take(rule.memory, by, "memory", rank, said.rule.memory, said.memory_by);
}

/// The index of each rank's host; empty if hosts are not known.
std::vector<size_t> HostOfRanks(const std::vector<RankHost>& hosts, int ranks) {
  std::vector<size_t> of;
  for (size_t h = 0; h < hosts.size(); ++h) {
    of.insert(of.end(), static_cast<size_t>(hosts[h].ranks > 0 ? hosts[h].ranks : ranks), h);
  }
  if (!of.empty() && static_cast<int>(of.size()) < ranks) {
    throw ConfigError(
        Str("ranks: the hosts have ", of.size(), " slots, the job has ", ranks, " ranks"));
  }
  return of;
}

/// The ranks that a rule names. Throws if there is none.
std::vector<int> RanksOf(const RankRule& rule, const std::vector<RankHost>& hosts,
                         const std::vector<size_t>& host_of, int ranks) {
  std::vector<int> found;
  if (const auto numbers = RanksIn(rule.who)) {
    const auto [first, last] = *numbers;
    if (first > last || last >= ranks) {
      throw ConfigError(Str("ranks: \"", rule.who, "\": the ranks are 0 to ", ranks - 1,
                            first > last ? ", the first before the last" : ""));
    }
    for (int rank = first; rank <= last; ++rank) found.push_back(rank);
    return found;
  }
  if (host_of.empty() && rule.who != "*") {
    throw ConfigError(Str("ranks: \"", rule.who, "\" is a pattern of host names, which only a ",
                          "--hostfile tells before the ranks meet; name ranks, such as \"0-3\""));
  }
  for (int rank = 0; rank < ranks; ++rank) {
    if (rule.who == "*" ||
        ::fnmatch(rule.who.c_str(), hosts[host_of[static_cast<size_t>(rank)]].name.c_str(), 0) ==
            0) {
      found.push_back(rank);
    }
  }
  if (!found.empty()) return found;
  std::vector<std::string> names;
  for (const RankHost& host : hosts) names.push_back(host.name);
  throw ConfigError(
      Str("ranks: no host's name fits \"", rule.who, "\"", DidYouMean(rule.who, names)));
}

std::vector<RankAbility> Checked(const std::vector<Said>& said, int64_t memory) {
  std::vector<RankAbility> abilities;
  for (const Said& rank : said) {
    RankAbility& ability = abilities.emplace_back();
    if (rank.rule.speed > 0) ability.speed = rank.rule.speed;
    ability.memory = rank.rule.memory > 0 ? rank.rule.memory : memory;
  }
  const auto has_none = [](const RankAbility& ability) { return ability.memory == 0; };
  const auto none = std::ranges::find_if(abilities, has_none);
  if (none != abilities.end() && !std::ranges::all_of(abilities, has_none)) {
    throw ConfigError(Str("ranks: rank ", none - abilities.begin(), " has no limit of memory, but ",
                          "others have; the job's key memory is that of all ranks without one"));
  }
  return abilities;
}

}  // namespace

RanksSpec ReadRanks(const Value& value) {
  std::vector<Entry> entries;
  const auto add = [&](const Value& item) {
    if (item.is_string()) {
      for (const std::string& text : Split(item.as_string(), ',')) entries.push_back(EntryOf(text));
    } else if (item.is_map()) {
      entries.push_back(EntryOf(item));
    } else {
      throw ConfigError(Str("ranks: ", kExpected, ", got ", item.Describe()));
    }
  };
  if (value.is_list()) {
    for (const Value& item : value.as_list()) add(item);
  } else if (!value.is_null()) {
    add(value);
  }
  RanksSpec spec;
  for (Entry& entry : entries) {
    CheckWho(entry.rule.who);
    spec.measured |= entry.measured;
    if (entry.measured && entry.rule.who != "*") {
      throw ConfigError(Str("ranks: speed = \"measured\" is for all ranks, not for \"",
                            entry.rule.who, "\" alone; leave out the pattern"));
    }
    if (entry.rule.speed > 0 || entry.rule.memory > 0) spec.rules.push_back(std::move(entry.rule));
  }
  const auto has_speed = [](const RankRule& rule) { return rule.speed > 0; };
  if (spec.measured && std::ranges::any_of(spec.rules, has_speed)) {
    throw ConfigError("ranks: speed = \"measured\" and a number contradict each other");
  }
  return spec;
}

Value ToValue(const RanksSpec& spec) {
  Value::List list;
  for (const RankRule& rule : spec.rules) {
    Value entry = Value::MakeMap({{"who", rule.who}});
    if (rule.speed > 0) entry.Set("speed", rule.speed);
    if (rule.memory > 0) entry.Set("memory", rule.memory);
    list.push_back(std::move(entry));
  }
  if (spec.measured) list.push_back(Value::MakeMap({{"who", "*"}, {"speed", kMeasured}}));
  return list;
}

void ReadAbility(const std::vector<std::string>& words, RankRule& rule) {
  Entry entry = {.rule = rule};
  SetWords(words, entry);
  if (entry.measured) {
    throw ConfigError("speed=measured is for all ranks: --ranks=speed=measured");
  }
  rule = std::move(entry.rule);
}

std::vector<RankAbility> AbilitiesOf(const RanksSpec& spec, const std::vector<RankHost>& hosts,
                                     int ranks, int64_t memory) {
  std::vector<Said> said(static_cast<size_t>(ranks));
  const std::vector<size_t> host_of = HostOfRanks(hosts, ranks);
  for (int rank = 0; rank < ranks && !host_of.empty(); ++rank) {
    const RankHost& host = hosts[host_of[static_cast<size_t>(rank)]];
    Take(host.says, host.where, rank, said[static_cast<size_t>(rank)]);
  }
  for (const RankRule& rule : spec.rules) {
    for (const int rank : RanksOf(rule, hosts, host_of, ranks)) {
      Take(rule, Str("\"", rule.who, "\""), rank, said[static_cast<size_t>(rank)]);
    }
  }
  return Checked(said, memory);
}

}  // namespace strata
