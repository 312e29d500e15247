// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Command tool is the one program in the containers that the end-to-end tests run: small ones of everyday tools.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"
)

const usage = `usage: tool COMMAND
  serve ADDRESS      answer each HTTP request with the host's name and the caller's address
  wget URL           print what a URL says
  dig NAME...        print the addresses that names resolve to
  write FILE TEXT    write a file
  append FILE TEXT   write a line at the end of a file
  cat FILE           print a file
  env                print the environment
  sleep              do nothing until told to stop
Commands are chained by --, and run one after the other`

var errUsage = errors.New(usage)

// timeout is how long a network call may take: refused packets are often just dropped.
const timeout = 5 * time.Second

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := chain(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func chain(ctx context.Context, args []string) error {
	for {
		end := slices.Index(args, "--")
		if end < 0 {
			return run(ctx, args)
		}
		if err := run(ctx, args[:end]); err != nil {
			return err
		}
		args = args[end+1:]
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return errUsage
	}
	switch command, args := args[0], args[1:]; {
	case command == "serve" && len(args) == 1:
		return serve(ctx, args[0])
	case command == "wget" && len(args) == 1:
		return wget(ctx, args[0])
	case command == "dig" && len(args) > 0:
		return dig(ctx, args)
	case command == "write" && len(args) == 2:
		return os.WriteFile(args[0], []byte(args[1]+"\n"), 0o600)
	case command == "append" && len(args) == 2:
		return appendLine(args[0], args[1])
	case command == "cat" && len(args) == 1:
		return cat(args[0])
	case command == "env" && len(args) == 0:
		fmt.Fprintln(os.Stdout, strings.Join(os.Environ(), "\n"))
		return nil
	case command == "sleep" && len(args) == 0:
		<-ctx.Done()
		return nil
	}
	return errUsage
}

func serve(ctx context.Context, address string) error {
	name, err := os.Hostname()
	if err != nil {
		return err
	}
	server := &http.Server{
		Addr:              address,
		ReadHeaderTimeout: timeout,
		Protocols:         &http.Protocols{},
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprintf(w, "%s serves %s\n", name, r.RemoteAddr)
		}),
	}
	server.Protocols.SetHTTP1(true)
	server.Protocols.SetUnencryptedHTTP2(true) // of GRPCRoutes
	go func() {
		<-ctx.Done()
		_ = server.Close()
	}()
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func wget(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	if _, err := io.Copy(os.Stdout, response.Body); err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s says %s", url, response.Status)
	}
	return nil
}

func dig(ctx context.Context, names []string) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for _, name := range names {
		addresses, err := net.DefaultResolver.LookupHost(ctx, name)
		if err != nil {
			return err
		}
		fmt.Println(strings.Join(addresses, " "))
	}
	return nil
}

func appendLine(file, text string) error {
	f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(f, text)
	return errors.Join(err, f.Close())
}

func cat(file string) error {
	content, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	_, err = os.Stdout.Write(content)
	return err
}
