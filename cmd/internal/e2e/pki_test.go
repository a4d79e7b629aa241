//go:build e2e

package e2e

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// authority is the cluster's one CA. What it signs lies in its directory, as
// NAME.crt and NAME.key.
type authority struct {
	dir    string
	cert   *x509.Certificate
	key    *ecdsa.PrivateKey
	serial int64
}

// newAuthority makes the CA, and the key that signs the tokens of ServiceAccounts.
func newAuthority(dir string) (*authority, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	a := &authority{dir: dir}
	a.cert = &x509.Certificate{
		Subject: pkix.Name{CommonName: "toolfleet-e2e"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	var err error
	if a.key, err = a.write("ca", a.cert, nil); err != nil {
		return nil, err
	}
	accounts, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	public, err := x509.MarshalPKIXPublicKey(accounts.Public())
	if err != nil {
		return nil, err
	}
	return a, errors.Join(a.writeKey("accounts", accounts), a.writePEM("accounts.pub", "PUBLIC KEY", public))
}

// server makes a server's certificate.
func (a *authority) server(name string, dns []string, ips ...string) error {
	c := &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, DNSNames: dns,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, ip := range ips {
		c.IPAddresses = append(c.IPAddresses, net.ParseIP(ip))
	}
	_, err := a.write(name, c, a.cert)
	return err
}

// user makes a user's certificate, and a kubeconfig for it.
func (a *authority) user(name, user string, groups ...string) error {
	_, err := a.write(name, &x509.Certificate{
		Subject:  pkix.Name{CommonName: user, Organization: groups},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, a.cert)
	if err != nil {
		return err
	}
	config := fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: e2e, cluster: {server: "https://127.0.0.1:6443", certificate-authority: %[1]s/ca.crt}}]
users: [{name: %[2]s, user: {client-certificate: %[1]s/%[2]s.crt, client-key: %[1]s/%[2]s.key}}]
contexts: [{name: e2e, context: {cluster: e2e, user: %[2]s}}]
current-context: e2e
`, a.dir, name)
	return os.WriteFile(a.kubeconfig(name), []byte(config), 0o600)
}

func (a *authority) kubeconfig(name string) string { return filepath.Join(a.dir, name+".kubeconfig") }

// write makes a key and signs its certificate; without an issuer by itself.
func (a *authority) write(name string, c, issuer *x509.Certificate) (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	a.serial++
	c.SerialNumber = big.NewInt(a.serial)
	c.NotBefore, c.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(24*time.Hour)
	signer := a.key
	if issuer == nil {
		issuer, signer = c, key
	}
	raw, err := x509.CreateCertificate(rand.Reader, c, issuer, key.Public(), signer)
	if err != nil {
		return nil, err
	}
	return key, errors.Join(a.writeKey(name, key), a.writePEM(name+".crt", "CERTIFICATE", raw))
}

func (a *authority) writeKey(name string, key crypto.PrivateKey) error {
	raw, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	return a.writePEM(name+".key", "PRIVATE KEY", raw)
}

func (a *authority) writePEM(name, kind string, raw []byte) error {
	return os.WriteFile(filepath.Join(a.dir, name), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: raw}), 0o600)
}
