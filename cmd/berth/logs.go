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

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"gopkg.in/natefinch/lumberjack.v2"
	logsapi "k8s.io/component-base/logs/api/v1"
	logsjson "k8s.io/component-base/logs/json"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
)

const logFile = "berth.log"

// logs sends the process's log lines to a file, so that the terminal shows only what is meant for people.
type logs struct {
	file   io.Closer
	logger klog.Logger
}

// maxLogMiB limits the log file, and the one older file that is kept. Tenants can cause log lines, which must not fill
// the disk of their stores.
const maxLogMiB = 64

// These are the formats of a log on standard error.
const (
	logText = "text"
	logJSON = "json"
)

// openLogs creates the data directory and redirects the process's log to a file in it.
func openLogs(dir string, verbosity int) (*logs, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make data directory: %w", err)
	}
	file := &lumberjack.Logger{Filename: filepath.Join(dir, logFile), MaxSize: maxLogMiB, MaxBackups: 1}
	if err := setUpKlog(file, verbosity); err != nil {
		return nil, err
	}
	return &logs{file: file, logger: klog.Background()}, nil
}

func (l *logs) close() {
	klog.Flush()
	_ = l.file.Close()
}

// logTo creates the data directory, if there is one, and sends the process's log lines to out, as text with key=value pairs or as JSON.
func logTo(out io.Writer, dir, format string, verbosity int) (klog.Logger, error) {
	if dir != "" {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return klog.Logger{}, fmt.Errorf("make data directory: %w", err)
		}
	}
	if err := setUpKlog(out, verbosity); err != nil {
		return klog.Logger{}, err
	}
	if format == logJSON {
		encoder := zap.NewProductionEncoderConfig()
		encoder.EncodeTime, encoder.LevelKey = zapcore.RFC3339NanoTimeEncoder, ""
		logger, _ := logsjson.NewJSONLogger(logsapi.VerbosityLevel(max(0, verbosity)), zapcore.Lock(logsjson.AddNopSync(out)), nil, &encoder)
		klog.SetLogger(logger)
		ctrl.SetLogger(logger)
	}
	return klog.Background(), nil
}

// setUpKlog sends log lines only to out.
func setUpKlog(out io.Writer, verbosity int) error {
	flags := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(flags)
	for name, value := range map[string]string{
		"logtostderr": "false", "alsologtostderr": "false", "stderrthreshold": "FATAL", "one_output": "true", "v": strconv.Itoa(verbosity),
	} {
		if err := flags.Set(name, value); err != nil {
			return fmt.Errorf("set up logging: %w", err)
		}
	}
	klog.SetOutput(out)
	ctrl.SetLogger(klog.Background())
	return nil
}
