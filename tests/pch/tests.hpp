#ifndef NSBOX_TESTS_PCH_TESTS_HPP
#define NSBOX_TESTS_PCH_TESTS_HPP

/// @file
/// What most tests include, read once for each test program. gcc compiles it by itself, where
/// `#pragma once` would be an error.

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <doctest/doctest.h>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>
#include <variant>
#include <vector>

#endif
