#pragma once

#include <string>

#include <termios.h>

namespace nsbox::pty {

/// The mode in which a terminal hands over every key and shows every character as it comes. What
/// describes the line itself (speed, parity, UTF-8) stays as it was. Pure.
termios raw_mode_of(const termios& mode);

/// Whether two modes treat input and output alike.
bool is_same_mode(const termios& one, const termios& other);

/// Whether `last` completes a line for who reads from a terminal in this mode. Pure.
bool ends_line(const termios& mode, char last);

/// What to type so that who reads from a terminal in this mode takes it for the end of the input;
/// empty where nothing means that: a program that takes every byte as data has no such character.
/// `line_is_empty`: nothing was typed since the last line was completed. Pure.
std::string end_of_input(const termios& mode, bool line_is_empty);

}  // namespace nsbox::pty
