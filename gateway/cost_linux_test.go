package gateway_test

import (
	"bytes"
	"fmt"
	"net"
	"strings"
	"testing"
)

func TestCost(t *testing.T) {
	watch := func(f *frames) error {
		s, err := f.request(true, f.header("GET", "/api/v1/pods?watch=1&resourceVersion=7", "of-eve"))
		if err == nil {
			_, err = f.await(s)
		}
		return err
	}
	_ = watch
	for name, c := range map[string]struct {
		proto string
		use   func(c net.Conn) error
	}{
		"tls only": {"http/1.1", func(c net.Conn) error { return nil }},
		"h1 idle":  {"http/1.1", func(c net.Conn) error { _, err := ask(c, "of-eve", "/api/v1/pods"); return err }},
		"h1 watch": {"http/1.1", func(c net.Conn) error {
			_, err := fmt.Fprintf(c, "GET /api/v1/pods?watch=1&resourceVersion=7 HTTP/1.1\r\nHost: berth\r\nAuthorization: Bearer of-eve\r\n\r\n")
			if err == nil {
				_, err = c.Read(make([]byte, 10))
			}
			return err
		}},
		"h1 half header": {"http/1.1", func(c net.Conn) error {
			_, err := fmt.Fprintf(c, "GET /api/v1/pods?watch=1&resourceVersion=7 HTTP/1.1\r\nHost: berth\r\nX: %s", strings.Repeat("x", 60<<10))
			return err
		}},
		"h2 idle": {"h2", func(c net.Conn) error {
			f, err := newFrames(c)
			if err != nil {
				return err
			}
			s, err := f.request(true, f.header("GET", "/api/v1/pods", "of-eve"))
			if err == nil {
				_, err = f.await(s)
			}
			return err
		}},
		"h2 watch": {"h2", func(c net.Conn) error {
			f, err := newFrames(c)
			if err != nil {
				return err
			}
			return watch(f)
		}},
		"h2 watch with bodies": {"h2", func(c net.Conn) error {
			f, err := newFrames(c)
			if err != nil {
				return err
			}
			for range 2 {
				s, err := f.request(false, f.header("GET", "/api/v1/pods?watch=1&resourceVersion=7", "of-eve"))
				if err == nil {
					_, err = f.await(s)
				}
				for range 8 {
					if err == nil {
						err = f.WriteData(s, false, make([]byte, 16<<10))
					}
				}
				if err != nil {
					return err
				}
			}
			return err
		}},
		"h2 watch, half header": {"h2", func(c net.Conn) error {
			f, err := newFrames(c)
			if err != nil {
				return err
			}
			if err := watch(f); err != nil {
				return err
			}
			block := bytes.Clone(f.header("GET", "/x", "of-eve", "x: "+strings.Repeat("x", 30<<10), "y: "+strings.Repeat("y", 30<<10)))
			_, err = f.request(true, block)
			return err
		}},
	} {
		t.Run(name, func(t *testing.T) {
			a := startAttacked(t)
			before, _ := a.memory(t)
			opened, failed := a.open(t, 1000, 4, c.proto, c.use)
			now, hwm := a.memory(t)
			t.Logf("COST %s: %d connections opened, %d failed; %d KiB each (hwm %d)", name, len(opened), failed, (now-before)/max(1, len(opened))>>10, (hwm-before)/max(1, len(opened))>>10)
		})
	}
}
