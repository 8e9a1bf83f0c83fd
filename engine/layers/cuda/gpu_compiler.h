// Compiles kernels for a GPU with NVRTC, NVIDIA's compiler library, and keeps the results in the
// cache folder. NVRTC is loaded when the first kernel is compiled; it needs neither a GPU nor
// CUDA's headers.
#pragma once

#include <string>

namespace strata {

/// NVRTC's version, "13.0". Throws WorldError if the library is not there.
std::string NvrtcVersion();

/// Compiles `source` for an architecture, "sm_90". Returns a CUBIN, the file that a GPU loads.
/// Throws WorldError with the compiler's messages.
std::string CompileForGpu(const std::string& source, const std::string& architecture);

/// The file in the cache folder for the CUBIN of this source, architecture and NVRTC.
std::string PathOfCompiled(const std::string& source, const std::string& architecture);

/// The CUBIN from the cache folder, or compiled and written there. A file that is damaged, or not
/// whole, counts as not there; a folder that cannot be written is no error.
std::string CompiledForGpu(const std::string& source, const std::string& architecture);

/// True if the cache folder has the CUBIN.
bool IsCompiledForGpu(const std::string& source, const std::string& architecture);

}  // namespace strata
