import glob,collections,re,subprocess,os,ast
os.chdir("/work/main")
F="/tmp/map/topology_interop_rules.map"
old=collections.defaultdict(set)
for f in glob.glob("/tmp/map/*.names.tsv"):
    for l in open(f):
        m,n,*r=l.rstrip("\n").split("\t"); old[n].add(m)
mine={}; new=collections.defaultdict(list); mods={}
for l in open(F):
    l=l.rstrip("\n")
    if not l or l[0]=="#": continue
    p=l.split("\t"); assert len(p)==3,l
    if p[0]=="name":
        assert p[1] not in mine,l; mine[p[1]]=p[2]; new[p[2]].append(p[1])
        m,n=p[1].split(":"); assert m in old[n],("NO SUCH",l)
    if p[0] in("module","merge"):
        assert p[1] not in mods,l; mods[p[1]]=p[2]
        assert os.path.exists(p[1].replace(".","/")+".py"),l
        if p[0]=="module" and os.path.exists(p[2].replace(".","/")+".py"): print("MODULE EXISTS",l)
left={n:set(s) for n,s in old.items()}
for f in glob.glob("/tmp/map/*.map"):
    if f==F: continue
    for l in open(f):
        p=l.rstrip("\n").split("\t")
        if len(p)<3: continue
        if p[0]=="name":
            if p[2] in new: print("OTHER MAP",os.path.basename(f),p[1:],new[p[2]])
            m,n=p[1].split(":"); left.get(n,set()).discard(m)
        if p[0]=="module":
            if p[2] in mods.values(): print("MOD CLASH",p)
            b=p[2].rsplit(".",1)[-1]
            for a,x in mods.items():
                if x.rsplit(".",1)[-1]==b: print("same module basename",p[1:],a,x)
print([x for x,c in collections.Counter(v.rsplit(".",1)[-1] for v in mods.values()).items() if c>1])
for n,os_ in new.items():
    if len(os_)>1: print("twice",n,os_)
    o=[m for m in left.get(n,()) if f"{m}:{n}" not in mine]
    if o: print("TAKEN",n,os_,o)
    if len(n)>30: print("long",len(n),n)
    g=subprocess.run(["git","grep","-lw",n,"--","*.py"],capture_output=True,text=True).stdout.split()
    if g: print("appears",n,os_[0],g[:5])
one=tot=0
for l in open("/tmp/map/topology.names.tsv"):
    m,n,k,*r=l.rstrip("\n").split("\t"); fl=r[-1]
    if not m.startswith(("topology.interop","topology.rules")): continue
    if n in("RULE","check"): continue
    fn=mine.get(f"{m}:{n}",n)
    if k=="func" and n not in("recognises","read","write"): tot+=1; one+="_" not in fn
    if f"{m}:{n}" not in mine:
        if "OWN-MODULE-ONLY" in fl and k=="const": continue
        print("kept",m,n,k,fl[:80])
print(len(mods),len(mine),"oneword",one,tot)
