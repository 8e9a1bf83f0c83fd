// Pictures: writes the files of --svg and --html, for plans and for traced trainings.
#pragma once

#include <string>

#include "engine/base/fields/fields.h"
#include "engine/base/value.h"
#include "engine/job/job.h"
#include "engine/picture/picture.h"
#include "engine/schedule/trace.h"

namespace strata::launcher {

/// The flags --svg=F and --html=F of commands that write pictures.
Field SvgField();
Field HtmlField();

/// True if a command's own flags ask for a picture.
bool WantsPictures(const Value& own_flags);

/// Writes the files that the flags ask for. Throws WorldError if a file cannot be written, and
/// ConfigError if the picture is too large for a file.
void WritePictures(const Value& own_flags, const picture::Picture& picture);

/// Call before a traced training. Throws ConfigError if pictures are requested without job.trace,
/// and WorldError if a file cannot be written.
void CheckTraceFiles(const Job& job, const Value& own_flags);

/// Writes job.trace, and pictures of the planned job with the measured step added. Returns the
/// names of the written files, one line each.
std::string WriteTraceFiles(const Job& job, const Value& own_flags, picture::Picture planned,
                            const schedule::Trace& trace);

}  // namespace strata::launcher
