#pragma once

#include <string>
#include <vector>

namespace nsbox::tests {

/// What a file tree consists of, one line each: path, type, mode, a link's text. Sorted.
std::string listing(const std::string& top);

void make_folder(const std::string& path);
void make_file(const std::string& path);
void make_link(const std::string& text, const std::string& path);

/// A fresh tmpfs for the calling process's mount namespace, as the working directory, in which
/// "root" is a new root that may not be left and "outside" is a copy of what is in it.
void enter_arena();

/// Fills the folder `top` with folders, files and links of every sort. The same seed gives the
/// same tree.
void grow_tree(const std::string& top, unsigned long seed);

/// Paths that lead through such a tree, or out of it.
std::vector<std::string> random_paths(unsigned long seed, std::size_t count);

}  // namespace nsbox::tests
