// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/berth-dev/berth/internal/testservers"
)

// link leads to a server, until it is cut: then nothing arrives on either side, and nobody is told, as with a network that loses all packets.
type link struct {
	net.Listener
	to string

	mu   sync.Mutex
	open *sync.Cond
	cut  bool
}

func newLink(t *testing.T, to string) *link {
	t.Helper()
	l := &link{Listener: must(net.Listen("tcp", "127.0.0.1:0"))(t), to: to}
	l.open = sync.NewCond(&l.mu)
	t.Cleanup(func() {
		l.set(false)
		_ = l.Close()
	})
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			go l.serve(client)
		}
	}()
	return l
}

func (l *link) set(cut bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut = cut
	l.open.Broadcast()
}

func (l *link) await() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.cut {
		l.open.Wait()
	}
}

func (l *link) serve(client net.Conn) {
	defer client.Close()
	l.await()
	server, err := net.Dial("tcp", l.to)
	if err != nil {
		return
	}
	defer server.Close()
	var both sync.WaitGroup
	for from, to := range map[net.Conn]net.Conn{client: server, server: client} {
		both.Go(func() {
			_, _ = io.Copy(awaiting{to, l}, from)
			_ = to.(*net.TCPConn).CloseWrite()
		})
	}
	both.Wait()
}

// awaiting writes when its link isn't cut.
type awaiting struct {
	io.Writer
	link *link
}

func (w awaiting) Write(p []byte) (int, error) {
	w.link.await()
	return w.Writer.Write(p)
}

// T8, D5: a shard that is cut off from the host, but not from its clients and from the server with its stores, loses those spaces to another
// shard: it acknowledges no write any more that the other doesn't have. A space with a file stays, and serves. When the link is back, the
// shard gets the space again after the death of the other.
func TestAShardThatIsCutOffFromTheHostServesNoSpaceOfAnother(t *testing.T) {
	t.Parallel()
	up := sharedBerth(t)
	kubeconfig := filepath.Join(up.dir, "host.kubeconfig")
	server := must(url.Parse(must(clientcmd.BuildConfigFromFlags("", kubeconfig))(t).Host))(t)
	way := newLink(t, server.Host)
	through := filepath.Join(t.TempDir(), "through.kubeconfig")
	if err := os.WriteFile(through, bytes.ReplaceAll(must(os.ReadFile(kubeconfig))(t), []byte(server.Host), []byte(way.Addr().String())), 0o600); err != nil {
		t.Fatal(err)
	}
	s := startShardsWith(t, "partition", []string{"cut-0", "--host-kubeconfig", through}, []string{"cut-1"})
	s.createStored(t, "parted", "cut-0", "PostgreSQL", testservers.PostgreSQL(t).Database(t))
	s.create(t, "parted-file", "cut-0")
	s.operate(t)
	cut, other := s.direct(t, "cut-0", "parted", "cut-0"), s.direct(t, "cut-1", "parted", "cut-0")
	file := s.direct(t, "cut-1", "parted-file", "cut-0")
	w, stop := writing(t, cut, cut, other)
	eventually(t, func() error { return expect("that it is written", w.count() > 50, true) })

	way.set(true)
	s.host.kubectl(t, "wait", "--for=jsonpath={.status.shard}=cut-1", "space/parted", "--timeout=180s")
	at := w.count()
	eventually(t, func() error { return expect("that it is written by the other shard", w.count() > at+20, true) })
	eventually(t, func() error {
		_, err := other.CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "marker"}}, metav1.CreateOptions{})
		return err
	})
	for range 20 {
		if err := serves(t, cut); err != nil {
			continue
		}
		if _, err := cut.CoreV1().ConfigMaps("default").Get(t.Context(), "marker", metav1.GetOptions{}); err != nil {
			t.Errorf("the shard that is cut off serves the past: %v", err)
		}
	}
	if is := s.shardOf(t, "parted-file"); is != "cut-0" {
		t.Errorf("the space with a file is on %s", is)
	}
	must(file.CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "during"}}, metav1.CreateOptions{}))(t)

	way.set(false)
	s.awaitReady(t, "cut-0", "True")
	eventually(t, func() error { return serves(t, cut) })
	at = w.count()
	eventually(t, func() error { return expect("that it is written by both", w.count() > at+20, true) })
	eventually(t, func() error { return expect("who has the files", strings.Join(s.dirsOf("parted"), " "), "cut-1") })

	s.processes["cut-1"].crash(t)
	s.host.kubectl(t, "wait", "--for=jsonpath={.status.shard}=cut-0", "space/parted", "--timeout=180s")
	at = w.count()
	eventually(t, func() error { return expect("that the first shard has it again", w.count() > at+20, true) })
	stop()
	w.mustHave(t, cut)
	must(cut.CoreV1().ConfigMaps("default").Get(t.Context(), "marker", metav1.GetOptions{}))(t)
}
