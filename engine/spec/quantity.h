// Quantities as people write them: "80GB", "25 GB/s", "200Gb/s", "5us", "19.5T". Numbers are taken
// as they are, in bytes, bytes per second, seconds and operations per second.
#pragma once

#include <cstdint>
#include <string>

#include "engine/base/value.h"

namespace strata {

/// Each reads a number or a text. Prefixes: k, M, G, T, P are powers of 1,000; Ki, Mi, Gi, Ti of
/// 1,024; B is a byte and b a bit (an eighth of one). Throws ConfigError that begins with `what`
/// ("memory") and shows an example: anything else, a negative or an infinite one.
double ParseBytes(const Value& value, const std::string& what);      ///< "80GB", "512MiB"
double ParseBandwidth(const Value& value, const std::string& what);  ///< "25GB/s", "200Gb/s"
double ParseSeconds(const Value& value, const std::string& what);    ///< "5us", "1.5ms", "2s"
double ParseRate(const Value& value, const std::string& what);       ///< "19.5T", "312TFLOP/s"

/// "1.23 MiB", which ParseBytes() reads as so many bytes or a few more.
std::string FormatAtLeast(int64_t bytes);

/// "25.0 GB/s"; decimal, as makers of links count.
std::string FormatBandwidth(double bandwidth);

}  // namespace strata
