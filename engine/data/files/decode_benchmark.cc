// Measures how many images per second a core decodes. Each worker of `strata train` decodes as
// many.
//   tools/bazel run -c opt //engine/data:decode_benchmark -- FOLDER SIZE [SECONDS]
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <vector>

#include "engine/data/files/image_file.h"
#include "engine/data/files/mapped_file.h"

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: decode_benchmark FOLDER SIZE [SECONDS]\n");
    return 2;
  }
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(argv[1])) {
    if (entry.is_regular_file()) paths.push_back(entry.path().string());
  }
  const int size = std::atoi(argv[2]);
  const double most = argc > 3 ? std::atof(argv[3]) : 3;
  std::vector<float> planes(3 * static_cast<size_t>(size) * static_cast<size_t>(size));
  // Processor time, so that other processes on the machine do not affect the result.
  const std::clock_t begin = std::clock();
  const auto seconds = [&] { return static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC; };
  long count = 0;
  for (; !paths.empty() && seconds() < most; ++count) {
    const std::string& path = paths[static_cast<size_t>(count) % paths.size()];
    const strata::data::MappedFile file(path, "an image");
    const auto image = strata::data::DecodeImage(file.text(), 3, size, path);
    strata::data::ResizeToPlanes(image, size, size, true, planes.data());
  }
  std::printf("%.0f images of %dx%d a second of a core\n", static_cast<double>(count) / seconds(),
              size, size);
  return 0;
}
