// ATen's exceptions as Strata's.
#pragma once

#include <c10/util/Exception.h>

#include <algorithm>
#include <string>
#include <string_view>

#include "engine/base/error.h"
#include "engine/base/text.h"

namespace strata {

/// Autograd's advice, of a tool that Python has.
inline constexpr std::string_view kTorchHint = " Hint: enable anomaly detection";

/// Runs `body`. What ATen throws becomes a WorldError when memory ran out or the accelerator failed
/// (it tells of an earlier kernel's failure at any later call), else a ConfigError, both as
/// "WHERE: what ATen says", without back-trace. `where` gives the text, only when it is needed.
template <class Where, class Body>
auto TranslateErrors(const Where& where, const Body& body) -> decltype(body()) {
  try {
    return body();
  } catch (const c10::OutOfMemoryError& error) {
    throw WorldError(Str(where(), ": ", error.what_without_backtrace()));
  } catch (const c10::AcceleratorError& error) {
    throw WorldError(Str(where(), ": ", error.what_without_backtrace()));
  } catch (const c10::Error& error) {
    std::string text = Str(where(), ": ", error.what_without_backtrace());
    text.resize(std::min(text.size(), text.find(kTorchHint)));
    const bool memory = text.find("can't allocate memory") != std::string::npos;
    if (memory) throw WorldError(text);
    throw ConfigError(text);
  }
}

}  // namespace strata
