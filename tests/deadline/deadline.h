// Ends a test program that hangs, shortly before Bazel would: with the name of the test, so that it
// fails as others do. tools/rules.bzl adds it to each. A program that it starts or forks has none.
#pragma once

namespace strata {

/// In that time from now the program prints which test runs, and exits with 1. A later call takes
/// the place of an earlier one.
void EndTestsAfter(double seconds);

}  // namespace strata
