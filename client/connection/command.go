// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package connection

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"

	"k8s.io/client-go/tools/clientcmd"
)

// ExitError is returned for a command that has failed. The command has printed why.
type ExitError struct {
	// Code is the exit code of the command, or 128 and the number of the signal that ended it.
	Code    int
	command string
}

func (e *ExitError) Error() string { return fmt.Sprintf("%s exited with code %d", e.command, e.Code) }

// Streams are those of a command.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
}

// Run runs a command with KUBECONFIG set to a file with the kubeconfig, which is removed when the command ends. A terminal sends
// an interrupt to the command itself, which decides what to do. A signal to terminate is passed on.
func Run(c *Config, command []string, streams Streams) error {
	dir, err := os.MkdirTemp("", "berth-connect-") // is for this user only
	if err != nil {
		return fmt.Errorf("write a kubeconfig for %s: %w", command[0], err)
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "kubeconfig")
	if err := clientcmd.WriteToFile(*c.Config, file); err != nil {
		return fmt.Errorf("write a kubeconfig for %s: %w", command[0], err)
	}
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+file)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = streams.In, streams.Out, streams.Err
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(signals)
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("run %s: %w", command[0], err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for {
		select {
		case s := <-signals:
			if s != os.Interrupt {
				_ = cmd.Process.Signal(s)
			}
		case err := <-ended:
			return exitOf(err, command[0])
		}
	}
}

func exitOf(err error, command string) error {
	exit, failed := errors.AsType[*exec.ExitError](err)
	if !failed {
		if err != nil {
			return fmt.Errorf("run %s: %w", command, err)
		}
		return nil
	}
	code := exit.ExitCode()
	if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		code = 128 + int(status.Signal())
	}
	return &ExitError{Code: code, command: command}
}
