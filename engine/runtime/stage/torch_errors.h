// TranslateErrors(): turns ATen's exceptions into Strata's.
#pragma once

#include <c10/util/Exception.h>

#include <algorithm>
#include <string>
#include <string_view>

#include "engine/base/error.h"
#include "engine/base/text.h"

namespace strata {

/// Advice that autograd appends to errors. It names a tool of Python, so it is cut off.
inline constexpr std::string_view kTorchHint = " Hint: enable anomaly detection";

/// Runs `body`. An exception of ATen becomes a WorldError if memory ran out or the accelerator
/// failed (which may report an earlier kernel's failure at any later call), and a ConfigError
/// otherwise. The text is "WHERE: what ATen says", without a back-trace. `where` returns the text
/// and is called only after an error.
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
