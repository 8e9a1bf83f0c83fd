#include "launcher/report/flight_file.h"

#include <array>
#include <ctime>
#include <filesystem>
#include <system_error>

#include "engine/base/error.h"
#include "engine/base/fd.h"
#include "engine/base/text.h"

namespace strata::launcher {
namespace {

namespace fs = std::filesystem;

/// The name for the current time, such as "flight-20261122-181530".
std::string NameOfNow() {
  const std::time_t now = std::time(nullptr);
  std::tm parts = {};
  ::localtime_r(&now, &parts);
  std::array<char, 64> text;
  std::strftime(text.data(), text.size(), "flight-%Y%m%d-%H%M%S", &parts);
  return text.data();
}

}  // namespace

std::string WriteFlightFile(const Value& record, const std::string& folder) {
  try {
    const fs::path base = folder.empty() ? fs::path() : fs::path(folder);
    std::error_code error;
    // An error here is reported when the file is written.
    if (!base.empty()) fs::create_directories(base, error);
    const std::string name = NameOfNow();
    std::string path = (base / (name + ".json")).string();
    for (int i = 2; fs::exists(path, error); ++i) {
      path = (base / Str(name, "-", i, ".json")).string();
    }
    try {
      WriteFile(path, record.ToJson() + "\n");
    } catch (const Error&) {
      fs::remove(path, error);  // an incomplete record is useless
      throw;
    }
    return Str("flight record of all ranks: ", path, " (strata inspect shows it)");
  } catch (const Error& error) {
    return Str("the flight record is lost: ", error.what());
  }
}

}  // namespace strata::launcher
