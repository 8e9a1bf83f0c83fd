#include "lua/core/file_access.h"

#include <algorithm>
#include <filesystem>

#include "engine/base/cache.h"
#include "engine/base/error.h"
#include "engine/base/text.h"
#include "lua/core/chunk.h"
#include "lua/core/core.h"

namespace strata::lua {
namespace {

namespace fs = std::filesystem;

constexpr char kLicenceTexts[] = "/usr/share/common-licenses";  // data.text reads these by default

/// The absolute path without ".", ".." and a slash at the end. It does not access the file system.
fs::path Plain(const fs::path& path) {
  const fs::path normal = fs::absolute(path).lexically_normal();
  return normal.has_filename() ? normal : normal.parent_path();
}

bool IsWithin(const fs::path& path, const fs::path& folder) {
  const auto [end, unused] = std::mismatch(folder.begin(), folder.end(), path.begin(), path.end());
  return end == folder.end();
}

/// True if `path` lies in `allowed`, as that is spelled or with its own links resolved.
bool IsAllowed(const fs::path& path, const std::string& allowed) {
  if (allowed.empty()) return false;
  const fs::path plain = Plain(allowed);
  std::error_code error;
  const fs::path real = fs::canonical(plain, error);
  return IsWithin(path, plain) || (!error && IsWithin(path, real));
}

/// The absolute path with links resolved, as far as it exists; the rest is kept as spelled.
fs::path RealPath(const std::string& path) {
  std::error_code error;
  const fs::path real = fs::weakly_canonical(fs::absolute(path), error);
  return error ? Plain(path) : Plain(real);
}

/// The folder where the set-up puts data; "" if it is not known.
std::string OwnData() {
  try {
    return CacheFolder();
  } catch (const Error&) {
    return "";
  }
}

}  // namespace

std::string CallingFolder(lua_State* L) { return State::Core::Of(L).CallingChunk(L).folder; }

std::string ReadablePath(lua_State* L, const std::string& folder, std::string_view path,
                         std::string_view what) {
  const State::Core& core = State::Core::Of(L);
  const fs::path asked{path};
  const fs::path whole = fs::path(folder.empty() ? "." : folder) / asked;
  const bool is_path = !path.empty() && path.find('\0') == path.npos;
  const bool climbs = std::ranges::find(asked, fs::path("..")) != asked.end();
  // After a symbolic link, ".." is the parent of the link's target. So links must be resolved
  // first.
  std::error_code error;
  const fs::path full = is_path && climbs ? fs::weakly_canonical(whole, error) : Plain(whole);
  if (is_path && core.script.empty()) return full.string();  // at the prompt
  const bool is_own = !climbs && IsAllowed(full, folder.empty() ? "." : folder);
  const auto allows = [&](const std::string& allowed) { return IsAllowed(full, allowed); };
  if (is_path && (is_own || std::ranges::any_of(core.options.allow_read, allows) ||
                  allows(OwnData()) || allows(kLicenceTexts))) {
    return full.string();
  }
  throw ConfigError(Str(what, " must be a file below the script's folder, not \"", path,
                        "\"; --allow_read=DIR lets scripts read in other folders"));
}

bool AtPrompt(lua_State* L) {
  State::Core& core = State::Core::Of(L);
  return core.script.empty() && core.Place(L).starts_with("prompt[");
}

std::string WritablePath(lua_State* L, const std::string& path,
                         const std::vector<std::string>& ends, std::string_view what) {
  const fs::path asked(path);
  if (std::ranges::find(ends, asked.extension().string()) == ends.end()) {
    throw ConfigError(
        Str(what, ": the file's name must end in ", Join(ends, " or "), ", not \"", path, "\""));
  }
  if (AtPrompt(L)) return path;
  const auto is_hidden = [](const fs::path& part) { return part.string().starts_with('.'); };
  if (asked.is_absolute() || path.find('\0') != path.npos ||
      std::ranges::any_of(asked, is_hidden)) {
    throw ConfigError(Str(what, ": the file must be below the script's folder and not hidden, not ",
                          "\"", path, "\""));
  }
  const std::string folder = CallingFolder(L);
  if (!asked.has_parent_path()) return (fs::path(folder) / asked).string();
  const std::string parent = PathWithin(folder, asked.parent_path().string(), what);
  return (fs::path(parent) / asked.filename()).string();
}

void CheckTrainingWrites(lua_State* L, const std::string& path, std::string_view key) {
  if (path.empty() || AtPrompt(L)) return;
  const fs::path real = RealPath(path);
  if (IsAllowed(real, CallingFolder(L)) || IsAllowed(real, ".")) return;
  throw ConfigError(Str(key,
                        " of a training within a script must lie below the script's folder or ",
                        "the current one, not \"", path, "\""));
}

void CheckReplaceable(const std::string& path, std::string_view kind,
                      bool (*is_one)(const std::string& path)) {
  std::error_code error;
  const fs::file_status status = fs::symlink_status(path, error);
  if (!fs::exists(status) || (fs::is_regular_file(status) && is_one(path))) return;
  throw ConfigError(Str(path, " exists and is no ", kind, ", so it is not replaced"));
}

}  // namespace strata::lua
