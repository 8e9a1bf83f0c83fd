// Reads quantities as people write them: "80GB", "25 GB/s", "200Gb/s", "5us", "19.5T". A plain
// number is in bytes, bytes per second, seconds or operations per second.
#pragma once

#include <cstdint>
#include <string>

#include "engine/base/value.h"

namespace strata {

/// Each function reads a number or a text. The prefixes k, M, G, T and P are powers of 1,000; Ki,
/// Mi, Gi and Ti are powers of 1,024. B is a byte, b is a bit. For any other text, and for a
/// negative or infinite quantity, it throws a ConfigError that begins with `what` ("memory") and
/// shows an example.
double ParseBytes(const Value& value, const std::string& what);      ///< "80GB", "512MiB"
double ParseBandwidth(const Value& value, const std::string& what);  ///< "25GB/s", "200Gb/s"
double ParseSeconds(const Value& value, const std::string& what);    ///< "5us", "1.5ms", "2s"
double ParseRate(const Value& value, const std::string& what);       ///< "19.5T", "312TFLOP/s"

/// A text such as "1.23 MiB", rounded up so that ParseBytes() reads it as `bytes` or slightly more.
std::string FormatAtLeast(int64_t bytes);

/// A bandwidth in decimal units, as vendors of links state them: "25.0 GB/s" for 25e9 bytes per
/// second.
std::string FormatBandwidth(double bandwidth);

}  // namespace strata
