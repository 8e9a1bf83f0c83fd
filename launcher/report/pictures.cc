// Writes the files that the picture flags ask for.
#include "launcher/report/pictures.h"

#include <vector>

#include "engine/base/error.h"
#include "engine/base/fd.h"
#include "engine/base/text.h"
#include "engine/picture/page.h"
#include "engine/picture/plan_picture.h"
#include "engine/picture/svg.h"

namespace strata::launcher {
namespace {

constexpr const char* kKinds[] = {"svg", "html"};

}  // namespace

Field SvgField() {
  return Field::String("svg", "a file for a drawing of ranks, memory and cuts over time")
      .Optional();
}

Field HtmlField() {
  return Field::String("html", "a file for the same as a page to zoom and point at").Optional();
}

bool WantsPictures(const Value& own_flags) {
  return !own_flags["svg"].is_null() || !own_flags["html"].is_null();
}

void WritePictures(const Value& own_flags, const picture::Picture& picture) {
  const Value& svg = own_flags["svg"];
  const Value& html = own_flags["html"];
  if (!svg.is_null()) WriteFile(svg.as_string(), picture::ToSvg(picture));
  if (!html.is_null()) WriteFile(html.as_string(), picture::ToHtml(picture));
}

void CheckTraceFiles(const Job& job, const Value& own_flags) {
  for (const char* kind : kKinds) {
    const Value& file = own_flags[kind];
    if (file.is_null()) continue;
    if (job.trace.empty()) {
      throw ConfigError(Str("--", kind,
                            " of train shows what was measured, which --trace=FILE "
                            "records; `strata plan --",
                            kind, "=", file.as_string(), "` shows what is predicted"));
    }
    CheckWritable(file.as_string());
  }
  if (!job.trace.empty()) CheckWritable(job.trace);
}

std::string WriteTraceFiles(const Job& job, const Value& own_flags, picture::Picture planned,
                            const schedule::Trace& trace) {
  WriteFile(job.trace, schedule::ToChromeTrace(trace));
  if (trace.empty()) return Str("trace: no step ran, so ", job.trace, " has none");
  planned.timelines.push_back(picture::MeasuredTimeline(trace));
  WritePictures(own_flags, planned);
  std::string text = Str("trace of steps ", trace.first_step(), " to ", trace.last_step(), ": ",
                         job.trace, " (opens in Perfetto)");
  for (const char* kind : kKinds) {
    if (own_flags[kind].is_string()) text += Str("\npicture: ", own_flags[kind].as_string());
  }
  return text;
}

}  // namespace strata::launcher
