// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Command conformance holds what `make conformance` needs beside upstream's suite: the names of the images that the
// suite asks for, and the judgement of a run. docs/contributing/conformance.md says more.
//
//	conformance images                       print each image that images/Dockerfile makes, and its name in the suite
//	conformance check REPORT EXPECTED [DOC]  judge a run by ginkgo's JSON report, and write the results into DOC
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
)

func main() {
	if err := run(os.Stdout, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "conformance:", err)
		os.Exit(1)
	}
}

func run(out io.Writer, args []string) error {
	switch {
	case len(args) == 1 && args[0] == "images":
		return printImages(out)
	case (len(args) == 3 || len(args) == 4) && args[0] == "check":
		return check(out, args[1], args[2], args[3:])
	}
	return errors.New("use `images`, or `check REPORT EXPECTED [DOC]`")
}

func check(out io.Writer, reportFile, expectedFile string, doc []string) error {
	expected, err := readExpected(expectedFile)
	if err != nil {
		return err
	}
	results, err := readReport(reportFile)
	if err != nil {
		return err
	}
	v := judge(results, expected)
	v.print(out)
	if !v.asExpected() {
		return fmt.Errorf("the run is not as %s says", expectedFile)
	}
	for _, file := range doc {
		if err := v.writeInto(file); err != nil {
			return err
		}
	}
	return nil
}
