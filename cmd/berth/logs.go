// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"

	"gopkg.in/natefinch/lumberjack.v2"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
)

const logFile = "berth.log"

// logs sends the process's log lines to a file, so that the terminal is left to
// what a person wants to read.
type logs struct {
	file   io.Closer
	logger klog.Logger
}

// maxLogMiB bounds the log, and one older part of it: what tenants can make
// Berth say must not fill the disk that their stores are on.
const maxLogMiB = 64

// openLogs makes the data directory and takes over the process's logging.
func openLogs(dir string, verbosity int) (*logs, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make data directory: %w", err)
	}
	file := &lumberjack.Logger{Filename: filepath.Join(dir, logFile), MaxSize: maxLogMiB, MaxBackups: 1}
	flags := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(flags)
	for name, value := range map[string]string{
		"logtostderr": "false", "alsologtostderr": "false", "stderrthreshold": "FATAL", "one_output": "true", "v": strconv.Itoa(verbosity),
	} {
		if err := flags.Set(name, value); err != nil {
			return nil, fmt.Errorf("set up logging: %w", err)
		}
	}
	klog.SetOutput(file)
	logger := klog.Background()
	ctrl.SetLogger(logger)
	return &logs{file: file, logger: logger}, nil
}

func (l *logs) close() {
	klog.Flush()
	_ = l.file.Close()
}
