package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"runtime/pprof"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/berth-dev/berth/vcluster"
	"github.com/berth-dev/berth/vcluster/pki"
	"k8s.io/klog/v2"
	"github.com/go-logr/logr"
)

func rss() float64 {
	b, _ := os.ReadFile("/proc/self/status")
	for _, l := range strings.Split(string(b), "\n") {
		if strings.HasPrefix(l, "VmRSS:") {
			f := strings.Fields(l)
			n, _ := strconv.Atoi(f[1])
			return float64(n) / 1024
		}
	}
	return 0
}
func cpu() float64 {
	var u syscall.Rusage
	syscall.Getrusage(0, &u)
	return float64(u.Utime.Sec+u.Stime.Sec) + float64(u.Utime.Usec+u.Stime.Usec)/1e6
}
func main() {
	klog.SetLogger(logr.Discard())
	dir, _ := os.MkdirTemp("", "prof")
	defer os.RemoveAll(dir)
	ca, err := pki.OpenCA(filepath.Join(dir, "ca"), "x")
	if err != nil {
		panic(err)
	}
	n, _ := strconv.Atoi(os.Args[1])
	var ps []*vcluster.ControlPlane
	start := func(i int) {
		t := time.Now()
		ctrl := vcluster.SpaceControllers()
		if len(os.Args) > 2 && os.Args[2] == "none" {
			ctrl = nil
		}
		p, err := vcluster.Start(context.Background(), vcluster.Config{Name: fmt.Sprint("s", i), Dir: filepath.Join(dir, fmt.Sprint("s", i)), Endpoint: "https://127.0.0.1:1/x", ServingCA: ca.PEM(), HiddenNodes: true, Controllers: ctrl})
		if err != nil {
			panic(err)
		}
		ps = append(ps, p)
		fmt.Printf("start %d %.2fs\n", i, time.Since(t).Seconds())
	}
	show := func(s string) (float64, int, float64) {
		time.Sleep(3 * time.Second)
		runtime.GC()
		debug.FreeOSMemory()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		fmt.Printf("%s rss=%.1f heap=%.1f stacks=%.1f goroutines=%d\n", s, rss(), float64(m.HeapAlloc)/1e6, float64(m.StackInuse)/1e6, runtime.NumGoroutine())
		return rss(), runtime.NumGoroutine(), float64(m.HeapAlloc) / 1e6
	}
	start(0)
	start(1)
	r0, g0, h0 := show("base")
	c0 := cpu()
	for i := 0; i < n; i++ {
		start(i + 2)
	}
	fmt.Printf("cpu per start %.2f\n", (cpu()-c0)/float64(n))
	r1, g1, h1 := show("end")
	fmt.Printf("per plane: rss=%.1f heap=%.1f goroutines=%d\n", (r1-r0)/float64(n), (h1-h0)/float64(n), (g1-g0)/n)
	cf, _ := os.Create("/tmp/cpu.pprof")
	pprof.StartCPUProfile(cf)
	c := cpu()
	time.Sleep(20 * time.Second)
	fmt.Printf("idle cpu per plane %.2f m\n", (cpu()-c)/20*1000/float64(n+2))
	pprof.StopCPUProfile()
	f, _ := os.Create("/tmp/heap.pprof")
	pprof.Lookup("heap").WriteTo(f, 0)
	f.Close()
	f, _ = os.Create("/tmp/gor.pprof")
	pprof.Lookup("goroutine").WriteTo(f, 0)
	f.Close()
	if len(os.Args) > 3 {
		for _, p := range ps {
			p.Stop(context.Background())
		}
		show("stopped")
	}
}
