// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// login is a user's machine, with a kubeconfig and a directory of tokens.
type login struct {
	*dex
	dataDir, kubeconfig, tokenDir string
}

func (d *dex) login(t *testing.T, of *berth) *login {
	t.Helper()
	dir := t.TempDir()
	return &login{dex: d, dataDir: of.dir, kubeconfig: filepath.Join(dir, "kubeconfig"), tokenDir: filepath.Join(dir, "tokens")}
}

func (l *login) client() []string {
	return []string{"--issuer", l.issuer, "--certificate-authority", l.ca, "--token-dir", l.tokenDir}
}

// run runs berth login, and returns once it has ended. visit does in a browser what berth asks for; code is that of a device.
func (l *login) run(t *testing.T, visit func(url, code string), args ...string) *process {
	t.Helper()
	p := spawn(t, slices.Concat([]string{"login", "--data-dir", l.dataDir, "--kubeconfig", l.kubeconfig, "--timeout", "180s"}, l.client(), args)...)
	t.Cleanup(func() { _ = p.Kill() })
	asked := regexp.MustCompile(`\n  (https://\S+)\n`)
	eventually(t, func() error {
		select {
		case <-p.done:
			return nil
		default:
		}
		if !asked.MatchString(p.stderr.String()) {
			return errors.New("it asks for nothing: " + p.output())
		}
		return nil
	})
	if found := asked.FindStringSubmatch(p.stderr.String()); found != nil {
		code := regexp.MustCompile(`the code "(\S+)"`).FindStringSubmatch(p.stderr.String())
		visit(found[1], slices.Concat(code, []string{"", ""})[1])
	}
	p.exitCode(t)
	return p
}

// as logs a user in by the forms of Dex.
func (l *login) as(t *testing.T, email string) func(url, code string) {
	return func(url, code string) {
		page := fillForms(t, l.browser(t), url, map[string]string{"login": email, "password": "password", "user_code": code})
		if !strings.Contains(page, "logged in") && !strings.Contains(page, "Login Successful") {
			t.Errorf("the browser ends at a page with %q", page)
		}
	}
}

// cluster returns what kubectl reaches with the kubeconfig.
func (l *login) cluster() *cluster { return &cluster{kubeconfig: l.kubeconfig} }

// A5, U2: users log in at a real OpenID Connect provider, by a browser or on a device, and use kubectl with a kubeconfig that has no secret.
func TestUsersLogInWithOpenIDConnect(t *testing.T) {
	t.Parallel()
	d := startDex(t)
	b := start(t, "--operator", "--authentication-config", d.authenticationConfig(t))
	host := b.host(t)
	for _, tenant := range []string{"solar", "lunar"} {
		host.apply(t, tenantObject(tenant, "{owners: [{kind: User, name: alice@solar.example.com}]}"))
		awaitTenant(t, host, tenant)
	}
	b.space(t, "solar").kubectl(t, "create", "clusterrolebinding", "alice", "--clusterrole=view", "--user=alice@solar.example.com")

	alice := d.login(t, b)
	p := alice.run(t, alice.as(t, "alice@solar.example.com"), "--no-browser")
	if want := `You are "alice@solar.example.com" of the tenant solar. The context berth of ` + alice.kubeconfig + " is the current one."; p.state.ExitCode() != 0 || p.stdout.String() != "berth\n" || !strings.Contains(p.stderr.String(), want) {
		t.Fatalf("it ends with %d, and prints %q and %q; want %q", p.state.ExitCode(), p.stdout.String(), p.stderr.String(), want)
	}
	alice.cluster().kubectl(t, "get", "pods")
	if out, err := alice.cluster().tryKubectl(t, "", "--server", b.space(t, "lunar").config.Host, "get", "--raw", "/api"); err == nil || !strings.Contains(out, "is not one of that tenant") {
		t.Errorf("in another space: %v, %s", err, out)
	}
	if out, err := alice.cluster().tryKubectl(t, "", "create", "clusterrolebinding", "x", "--clusterrole=admin", "--user=x"); err == nil || !strings.Contains(out, "forbidden") {
		t.Errorf("what the space doesn't allow: %v, %s", err, out)
	}
	noSecret(t, alice)
	refreshed(t, alice)

	// Tokens of the space itself are good in it as before.
	solar := b.space(t, "solar")
	robot := strings.TrimSpace(solar.kubectl(t, "create", "token", "default"))
	who := must(must(kubernetes.NewForConfig(withToken(solar.config, robot)))(t).AuthenticationV1().SelfSubjectReviews().
		Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{}))(t).Status.UserInfo
	if who.Username != "system:serviceaccount:default:default" {
		t.Errorf("a token of the space is of %v", who)
	}

	// On a device, and into another kubeconfig context.
	device := d.login(t, b)
	p = device.run(t, device.as(t, "alice@solar.example.com"), "--device", "--space", "solar")
	if p.state.ExitCode() != 0 || p.stdout.String() != "berth_solar\n" {
		t.Fatalf("on a device, it ends with %d: %s", p.state.ExitCode(), p.output())
	}
	device.cluster().kubectl(t, "--context", "berth_solar", "get", "pods")

	// A system user is one by the admin's expression, and nobody by the name of a tenant.
	root := d.login(t, b)
	if p := root.run(t, root.as(t, "root@example.com"), "--no-browser"); p.state.ExitCode() != 0 || !strings.Contains(p.output(), "of the tenant system") {
		t.Errorf("a system user: %s", p.output())
	}
	mallory := d.login(t, b)
	if p := mallory.run(t, mallory.as(t, "mallory@system.example.com"), "--no-browser"); p.state.ExitCode() != 1 || !strings.Contains(p.output(), "names the tenant system, which needs the mapping berth.dev/system") {
		t.Errorf("a user whose claim is system: %s", p.output())
	}

	stdout, stderr, code := runBerth(t, append([]string{"logout"}, alice.client()...)...)
	if code != 0 || stdout != "" || stderr != "You are logged out.\n" {
		t.Errorf("it logs out with %d, %q, %q", code, stdout, stderr)
	}
	if out, err := alice.cluster().tryKubectl(t, "", "get", "pods"); err == nil || !strings.Contains(out, "you are not logged in, or your login has expired; run: berth login --issuer="+d.issuer) {
		t.Errorf("once logged out: %v, %s", err, out)
	}
	// To log in again, the address of Berth is not needed.
	alice.dataDir = t.TempDir()
	if p := alice.run(t, alice.as(t, "alice@solar.example.com"), "--no-browser"); p.state.ExitCode() != 0 {
		t.Errorf("again: %s", p.output())
	}
	alice.cluster().kubectl(t, "get", "pods")
}

// noSecret checks that the kubeconfig has no secret, and that nobody else can read the tokens.
func noSecret(t *testing.T, l *login) {
	t.Helper()
	config := must(clientcmd.LoadFromFile(l.kubeconfig))(t)
	user := config.AuthInfos[config.Contexts[config.CurrentContext].AuthInfo]
	if user.Token != "" || user.Password != "" || user.ClientKeyData != nil || user.AuthProvider != nil || user.Exec == nil {
		t.Errorf("the user of the kubeconfig is %v", user)
	}
	if data := must(os.ReadFile(l.kubeconfig))(t); strings.Contains(string(data), "eyJ") {
		t.Errorf("the kubeconfig has a token:\n%s", data)
	}
	if info := must(os.Stat(l.tokenDir))(t); info.Mode().Perm() != 0o700 {
		t.Errorf("the directory of tokens has the mode %v", info.Mode())
	}
	for _, entry := range must(os.ReadDir(l.tokenDir))(t) {
		if info := must(entry.Info())(t); info.Mode().Perm() != 0o600 {
			t.Errorf("the file %s has the mode %v", entry.Name(), info.Mode())
		}
	}
}

// refreshed checks that several kubectl, at once, get by with one refresh token: Dex accepts each once.
func refreshed(t *testing.T, l *login) {
	t.Helper()
	tokens := func() string {
		files := must(filepath.Glob(filepath.Join(l.tokenDir, "*.json")))(t)
		if len(files) != 1 {
			t.Fatalf("the tokens are in %v", files)
		}
		return string(must(os.ReadFile(files[0]))(t))
	}
	for range 2 {
		before, expired := tokens(), time.NewTimer(11*time.Second) // tokens that are good for less than 10 s are refreshed
		select {
		case <-expired.C:
		case <-t.Context().Done():
			t.Fatal("the test ends")
		}
		var group sync.WaitGroup
		errs := make(chan error, 5)
		for range cap(errs) {
			group.Go(func() {
				if out, err := l.cluster().tryKubectl(t, "", "get", "pods"); err != nil {
					errs <- fmt.Errorf("%w: %s", err, out)
				}
			})
		}
		group.Wait()
		close(errs)
		for err := range errs {
			t.Errorf("once the token has expired: %v", err)
		}
		if tokens() == before {
			t.Error("the tokens are the same once they have expired")
		}
	}
}

// A5: what is wrong with the flags of a login is said, with what to do.
func TestALoginThatCantWorkSaysWhy(t *testing.T) {
	t.Parallel()
	d, dir := startDex(t), t.TempDir()
	client := []string{"--token-dir", filepath.Join(dir, "tokens"), "--server", "https://127.0.0.1:1"}
	for want, args := range map[string][]string{
		`required flag(s) "issuer" not set`:                                                  {"login"},
		"--issuer=http://127.0.0.1:5556/dex: must begin with https://":                       append([]string{"login", "--issuer", "http://127.0.0.1:5556/dex"}, client...),
		"use --certificate-authority":                                                        append([]string{"login", "--issuer", d.issuer}, client...),
		"--certificate-authority=" + filepath.Join(dir, "none"):                              append([]string{"login", "--issuer", d.issuer, "--certificate-authority", filepath.Join(dir, "none")}, client...),
		"--issuer=" + d.issuer + "x: ":                                                       append([]string{"login", "--issuer", d.issuer + "x", "--certificate-authority", d.ca}, client...),
		"no Berth is on this machine in --data-dir=" + dir + "; use --server":                {"login", "--issuer", d.issuer, "--data-dir", dir},
		"--server=http://berth: must begin with https://":                                    {"login", "--issuer", d.issuer, "--server", "http://berth"},
		"you are not logged in, or your login has expired; run: berth login --issuer=https:": {"login", "token", "--issuer", d.issuer, "--token-dir", filepath.Join(dir, "tokens")},
		"wait for the login: context deadline exceeded":                                      append([]string{"login", "--device", "--issuer", d.issuer, "--certificate-authority", d.ca, "--timeout", "3s"}, client...),
	} {
		stdout, stderr, code := runBerth(t, args...)
		if code != 1 || stdout != "" || !strings.Contains(stderr, want) {
			t.Errorf("%v: it ends with %d, and prints %q and %q; want %q", args, code, stdout, stderr, want)
		}
	}
}
