// RankAbility: how fast a rank is and how much memory it has, where ranks differ. The key `ranks`
// of a job and the lines of a host file give abilities; plans, forecasts and searches go by them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/base/value.h"

namespace strata {

struct RankAbility {
  double speed = 1;    ///< relative to the ranks whose seconds the costs of layers are
  int64_t memory = 0;  ///< the limit of the rank's tensors in bytes; 0 = none
  bool operator==(const RankAbility&) const = default;
};

/// What one entry of `ranks` says about the ranks that it names.
struct RankRule {
  /// "3" or "2-5" are ranks of the job; anything else is a pattern of host names, in which * stands
  /// for any characters and ? for one.
  std::string who = "*";
  double speed = 0;    ///< 0 = not said
  int64_t memory = 0;  ///< 0 = not said
  bool operator==(const RankRule&) const = default;
};

/// The key `ranks` of a job.
struct RanksSpec {
  std::vector<RankRule> rules;
  /// True: the ranks are timed before the first step. Then no rule gives a speed.
  bool measured = false;
  bool operator==(const RanksSpec&) const = default;
};

/// A machine of the job and what a host file says about each of its ranks.
struct RankHost {
  std::string name;
  int ranks = 0;           ///< 0 = all ranks of the job
  RankRule says = {};      ///< `who` is not used
  std::string where = {};  ///< the place in the host file, for errors
};

/// Reads the key's value: an entry or a list of entries. An entry is a table such as {"slow*",
/// speed=0.5, memory="24GiB"}, or a text "slow* speed=0.5 memory=24GiB"; a text may have several
/// entries, with commas. The pattern "*" may be left out. Throws ConfigError for anything else.
RanksSpec ReadRanks(const Value& value);
Value ToValue(const RanksSpec& spec);

/// Reads words such as "speed=0.5 memory=24GiB" into the rule. Throws ConfigError for other words.
void ReadAbility(const std::vector<std::string>& words, RankRule& rule);

/// The ability of each of `ranks` ranks. `memory`: the limit of ranks for which nothing else is
/// said; 0 = none. `hosts`: the machines in the order of ranks; empty if they are not known. Throws
/// ConfigError for a pattern that fits no rank (with the nearest host), for two statements about
/// one rank that differ, and if a limit is said for some ranks and others have none.
std::vector<RankAbility> AbilitiesOf(const RanksSpec& spec, const std::vector<RankHost>& hosts,
                                     int ranks, int64_t memory);

}  // namespace strata
