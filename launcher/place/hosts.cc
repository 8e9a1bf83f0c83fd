// Host files, and the specs of --include and --exclude.
#include "launcher/place/hosts.h"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <map>
#include <optional>
#include <sstream>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/base/value.h"

namespace strata::launcher {
namespace {

constexpr int kMostSlots = 4096;

std::optional<int> WholeNumber(std::string_view text, int most) {
  int number = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  return whole && number >= 0 && number <= most ? std::optional(number) : std::nullopt;
}

std::vector<int> Numbers(int count) {
  std::vector<int> numbers;
  for (int i = 0; i < count; ++i) numbers.push_back(i);
  return numbers;
}

/// Reads a line such as "host1 slots=4 speed=0.5", whose comment has been removed.
Host ParseLine(const std::string& line) {
  std::istringstream words(line);
  std::string name, slots;
  words >> name >> slots;
  constexpr std::string_view kSlots = "slots=";
  std::optional<int> count;
  if (slots.starts_with(kSlots)) {
    count = WholeNumber(std::string_view(slots).substr(kSlots.size()), kMostSlots);
  }
  if (!count || *count == 0) {
    throw ConfigError(
        Str("expected HOST slots=N, N from 1 to ", kMostSlots, ", got \"", Trim(line), "\""));
  }
  CheckHostName(name);
  Host host = {.name = name, .slots = Numbers(*count)};
  const std::vector<std::string> more{std::istream_iterator<std::string>(words), {}};
  ReadAbility(more, host.says);
  return host;
}

/// The slots that a spec picks, by host.
using Picks = std::map<std::string, std::vector<int>>;

std::vector<int> ParseSlots(const Host& host, std::string_view text) {
  std::vector<int> slots;
  for (const std::string& word : Split(text, ',')) {
    const std::optional<int> slot = WholeNumber(word, kMostSlots);
    if (!slot || std::find(host.slots.begin(), host.slots.end(), *slot) == host.slots.end()) {
      throw ConfigError(
          Str("\"", host.name, "\" has no slot \"", word, "\"; it has ", Join(host.slots, ",")));
    }
    if (std::find(slots.begin(), slots.end(), *slot) != slots.end()) {
      throw ConfigError(Str("slot ", *slot, " of ", host.name, " is given twice"));
    }
    slots.push_back(*slot);
  }
  std::sort(slots.begin(), slots.end());
  return slots;
}

const Host& FindHost(const std::vector<Host>& hosts, const std::string& name) {
  std::vector<std::string> names;
  for (const Host& host : hosts) {
    if (host.name == name) return host;
    names.push_back(host.name);
  }
  throw ConfigError(Str("there is no host \"", name, "\"", DidYouMean(name, names)));
}

Picks ParsePicks(const std::vector<Host>& hosts, const std::string& spec) {
  Picks picks;
  for (const std::string& part : Split(spec, '@')) {
    // The name may contain colons itself (IPv6).
    const bool all = std::ranges::find(hosts, part, &Host::name) != hosts.end();
    const size_t colon = all ? part.npos : part.rfind(':');
    const Host& host = FindHost(hosts, part.substr(0, colon));
    std::vector<int> slots = all ? host.slots : ParseSlots(host, part.substr(colon + 1));
    if (!picks.emplace(host.name, std::move(slots)).second) {
      throw ConfigError(Str("host \"", host.name, "\" is given twice"));
    }
  }
  return picks;
}

/// ParsePicks(), with the flag's name in front of errors.
Picks ParsePicksOf(const char* flag, const std::vector<Host>& hosts, const std::string& spec) {
  try {
    return ParsePicks(hosts, spec);
  } catch (const ConfigError& error) {
    throw ConfigError(Str(flag, "=", spec, ": ", error.what()));
  }
}

bool IsOfName(char c) {
  const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  return letter || (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-' || c == ':';
}

}  // namespace

std::vector<Host> ParseHosts(std::string_view text, const std::string& path) {
  std::vector<Host> hosts;
  std::map<std::string, int> lines;
  int number = 0;
  for (const std::string& line : Split(text, '\n')) {
    ++number;
    const std::string content = line.substr(0, line.find('#'));
    if (Trim(content).empty()) continue;
    try {
      Host host = ParseLine(content);
      const auto [known, is_new] = lines.emplace(host.name, number);
      if (!is_new) {
        throw ConfigError(
            Str("host \"", host.name, "\" is there already, in line ", known->second));
      }
      if (host.says != RankRule()) host.where = Str(path, ":", number);
      hosts.push_back(std::move(host));
    } catch (const ConfigError& error) {
      throw ConfigError(Str(path, ":", number, ": ", error.what()));
    }
  }
  if (hosts.empty()) throw ConfigError(Str(path, ": there is no host in it"));
  return hosts;
}

std::vector<Host> Include(const std::vector<Host>& hosts, const std::string& spec) {
  const Picks picks = ParsePicksOf("--include", hosts, spec);
  std::vector<Host> included;
  for (const Host& host : hosts) {
    const auto pick = picks.find(host.name);
    if (pick == picks.end()) continue;
    included.push_back(host);
    included.back().slots = pick->second;
  }
  return included;
}

std::vector<Host> Exclude(const std::vector<Host>& hosts, const std::string& spec) {
  const Picks picks = ParsePicksOf("--exclude", hosts, spec);
  std::vector<Host> left;
  for (Host host : hosts) {
    const auto pick = picks.find(host.name);
    if (pick != picks.end()) {
      std::erase_if(host.slots, [&](int slot) {
        return std::binary_search(pick->second.begin(), pick->second.end(), slot);
      });
    }
    if (!host.slots.empty()) left.push_back(std::move(host));
  }
  if (left.empty()) throw ConfigError(Str("--exclude=", spec, ": no slot is left"));
  return left;
}

std::vector<Host> First(std::vector<Host> hosts, int nodes, int slots) {
  if (nodes > static_cast<int>(hosts.size())) {
    throw ConfigError(Str("expected ", Plural(nodes, "host"), ", there are ", hosts.size()));
  }
  if (nodes > 0) hosts.resize(static_cast<size_t>(nodes));
  for (Host& host : hosts) {
    if (slots > static_cast<int>(host.slots.size())) {
      throw ConfigError(Str("expected ", Plural(slots, "slot"), " on each host, \"", host.name,
                            "\" has ", host.slots.size()));
    }
    if (slots > 0) host.slots.resize(static_cast<size_t>(slots));
  }
  return hosts;
}

std::vector<RankHost> RankHosts(const std::vector<Host>& hosts) {
  std::vector<RankHost> of_ranks;
  for (const Host& host : hosts) {
    of_ranks.push_back({host.name, static_cast<int>(host.slots.size()), host.says, host.where});
  }
  return of_ranks;
}

void CheckHostName(std::string_view name) {
  if (!name.empty() && name[0] != '-' && std::all_of(name.begin(), name.end(), IsOfName)) return;
  throw ConfigError(Str(Value(name).ToJson(), " is no host's name: expected letters, digits, and ",
                        ". _ - : without - in front (for a user's name use ssh's configuration)"));
}

}  // namespace strata::launcher
