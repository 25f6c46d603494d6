// Runs a command in a sandbox, through libnsbox by cgo:
//
//	run COMMAND [ARGUMENT...]
//
// It sees the system's programs and nothing of yours, has no network, and is ended after ten seconds.
package main

/*
#cgo pkg-config: nsbox
#include <nsbox/nsbox.h>
#include <stdlib.h>
*/
import "C"

import (
	"errors"
	"fmt"
	"os"
	"unsafe"
)

func run(document string, words []string, milliseconds int64) (int, []byte, []byte, error) {
	argv := make([]*C.char, len(words))
	for i, word := range words {
		argv[i] = C.CString(word)
		defer C.free(unsafe.Pointer(argv[i]))
	}
	command := C.nsbox_command_new(&argv[0], C.size_t(len(words)))
	defer C.nsbox_command_free(command)
	text := C.CString(document)
	defer C.free(unsafe.Pointer(text))
	options := C.nsbox_run_options{milliseconds: C.int64_t(milliseconds)}
	options.size = C.size_t(unsafe.Sizeof(options))
	var problem *C.nsbox_error
	outcome := C.nsbox_run(text, C.size_t(len(document)), command, &options, &problem)
	if outcome == nil {
		defer C.nsbox_error_free(problem)
		return 0, nil, nil, errors.New(C.GoString(C.nsbox_error_message(problem)))
	}
	defer C.nsbox_outcome_free(outcome)
	var status C.nsbox_status
	status.size = C.size_t(unsafe.Sizeof(status))
	C.nsbox_outcome_status(outcome, &status)
	var size C.size_t
	output := C.nsbox_outcome_output(outcome, &size)
	printed := C.GoBytes(unsafe.Pointer(output), C.int(size))
	said := C.nsbox_outcome_error(outcome, &size)
	return int(status.shell_code), printed, C.GoBytes(unsafe.Pointer(said), C.int(size)), nil
}

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: run COMMAND [ARGUMENT...]")
		os.Exit(2)
	}
	status, output, said, err := run(`{"version": 1}`, os.Args[1:], 10000)
	if err != nil {
		fmt.Fprintln(os.Stderr, "run:", err)
		os.Exit(125)
	}
	os.Stdout.Write(output)
	os.Stderr.Write(said)
	os.Exit(status)
}
