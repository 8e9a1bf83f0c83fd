#include "engine/base/fields/quantity.h"

#include <array>
#include <cmath>
#include <cstdlib>
#include <span>
#include <string_view>

#include "engine/base/error.h"
#include "engine/base/text.h"

namespace strata {
namespace {

struct Unit {
  std::string_view text;
  double factor;
};

constexpr double kKibi = 1024;
constexpr std::array kBytePrefixes = {
    Unit{"", 1},
    Unit{"k", 1e3},
    Unit{"K", 1e3},
    Unit{"M", 1e6},
    Unit{"G", 1e9},
    Unit{"T", 1e12},
    Unit{"Ki", kKibi},
    Unit{"Mi", kKibi* kKibi},
    Unit{"Gi", kKibi* kKibi* kKibi},
    Unit{"Ti", kKibi* kKibi* kKibi* kKibi},
};
constexpr std::array kRatePrefixes = {Unit{"", 1},    Unit{"k", 1e3},  Unit{"M", 1e6},
                                      Unit{"G", 1e9}, Unit{"T", 1e12}, Unit{"P", 1e15}};
constexpr std::array kTimes = {Unit{"s", 1}, Unit{"ms", 1e-3}, Unit{"us", 1e-6}, Unit{"ns", 1e-9}};

/// The factor of `unit`, which is a prefix followed by an ending; 0 if the unit is unknown.
double FactorOf(std::string_view unit, std::span<const Unit> prefixes,
                std::span<const Unit> endings) {
  for (const Unit& ending : endings) {
    if (!unit.ends_with(ending.text)) continue;
    const std::string_view rest = unit.substr(0, unit.size() - ending.text.size());
    for (const Unit& prefix : prefixes) {
      if (rest == prefix.text) return prefix.factor * ending.factor;
    }
  }
  return 0;
}

double Parse(const Value& value, const std::string& what, const char* example,
             std::span<const Unit> prefixes, std::span<const Unit> endings) {
  const auto refuse = [&] {
    throw ConfigError(Str(what, ": expected a number of at least 0, or a text such as \"", example,
                          "\", got ", value.Describe()));
  };
  double number = 0, factor = 1;
  if (value.is_number()) {
    number = value.as_double();
  } else if (value.is_string()) {
    const std::string text(Trim(value.as_string()));
    char* end = nullptr;
    number = std::strtod(text.c_str(), &end);
    const bool has_digits = end != text.c_str();
    const std::string_view unit = Trim(std::string_view(end));
    factor = unit.empty() ? 1 : FactorOf(unit, prefixes, endings);
    if (!has_digits || factor == 0) refuse();
  } else {
    refuse();
  }
  if (!std::isfinite(number) || number < 0) refuse();
  // Dividing by 1e6 gives exactly 5e-6 for 5us; multiplying by 1e-6 would round.
  return factor < 1 ? number / std::round(1 / factor) : number * factor;
}

constexpr Unit kNoPrefix[] = {{"", 1}};

}  // namespace

double ParseBytes(const Value& value, const std::string& what) {
  constexpr Unit kEndings[] = {{"B", 1}, {"", 1}};
  return Parse(value, what, "80GB", kBytePrefixes, kEndings);
}

double ParseBandwidth(const Value& value, const std::string& what) {
  constexpr Unit kEndings[] = {{"B/s", 1}, {"b/s", 0.125}, {"bit/s", 0.125}};
  return Parse(value, what, "25GB/s", kBytePrefixes, kEndings);
}

double ParseSeconds(const Value& value, const std::string& what) {
  return Parse(value, what, "5us", kNoPrefix, kTimes);
}

double ParseRate(const Value& value, const std::string& what) {
  constexpr Unit kEndings[] = {{"FLOP/s", 1}, {"FLOPS", 1}, {"", 1}};
  return Parse(value, what, "19.5T", kRatePrefixes, kEndings);
}

std::string FormatAtLeast(int64_t bytes) {
  auto enough = static_cast<double>(bytes);
  while (ParseBytes(FormatBytes(enough), "bytes") < static_cast<double>(bytes)) enough *= 1.0005;
  return FormatBytes(enough);
}

std::string FormatBandwidth(double bandwidth) {
  constexpr const char* kUnits[] = {"B/s", "kB/s", "MB/s", "GB/s", "TB/s"};
  size_t unit = 0;
  for (; bandwidth >= 999.5 && unit + 1 < std::size(kUnits); ++unit) bandwidth /= 1000;
  return Printf("%.3g %s", bandwidth, kUnits[unit]);
}

}  // namespace strata
