// Pictures: the files that --svg and --html ask for, of plans and of traced trainings.
#pragma once

#include <string>

#include "engine/base/value.h"
#include "engine/picture/picture.h"
#include "engine/schedule/trace.h"
#include "engine/spec/fields.h"
#include "engine/spec/job.h"

namespace strata::launcher {

/// --svg=F and --html=F, of commands that write pictures.
Field SvgField();
Field HtmlField();

/// Whether a command's own flags ask for a picture.
bool WantsPictures(const Value& own_flags);

/// Writes the files that the flags ask for. Throws WorldError where a file cannot be written, and
/// ConfigError for a picture that does not fit into one.
void WritePictures(const Value& own_flags, const picture::Picture& picture);

/// A traced training's: refuses pictures without job.trace, and what cannot be written, before
/// anything is trained. Throws ConfigError, WorldError.
void CheckTraceFiles(const Job& job, const Value& own_flags);

/// Writes job.trace, and the pictures of what was planned with the measured step beside. Returns
/// what was written, a line each.
std::string WriteTraceFiles(const Job& job, const Value& own_flags, picture::Picture planned,
                            const schedule::Trace& trace);

}  // namespace strata::launcher
